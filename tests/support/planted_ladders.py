"""How often ladders err whose truth is planted: words, and the coverage of intervals.

`PYTHONPATH=. python tests/support/planted_ladders.py` prints the study, in eight minutes;
tests/ladder/test_planted_ladders.py holds the required part.

The baseline's loss is 2 + 20 N^-0.2 nats, N from a million on, twice as large from size to size: 3.26, 3.10, 2.96 and
2.83 at four sizes. The loss of a trial has the seed noise `noise` (0.005 nats are 0.5 % of perplexity). Head and
baseline have noise of their own; `common` is the part of its variance that both share, as trials with one seed may do.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from harness.ladder.drawn_means import means
from harness.ladder.gains import gains_and_trend
from harness.ladder.worth import Axis, shares, worths

FLOOR, SCALE, ALPHA = 2.0, 20.0, 0.2
MARGIN = math.log(1.01)


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Ladders with one truth.

    Args:
        gains: of perplexity, by size, as fractions.
        seeds: by size, or one number for all.
        floor: as `worths` gets it; NaN: no worth is asked for, as it takes most of the time.
    """

    gains: tuple[float, ...]
    seeds: int | tuple[int, ...] = 4
    noise: float | tuple[float, ...] = 0.005
    common: float = 0.0
    step: float = 2.0
    floor: float | None = math.nan

    @property
    def axis(self) -> np.ndarray:
        return 1e6 * self.step ** np.arange(len(self.gains))

    @property
    def baseline(self) -> np.ndarray:
        return FLOOR + SCALE * self.axis**-ALPHA

    @property
    def nats(self) -> np.ndarray:
        return -np.log1p(-np.array(self.gains))

    def drawn(self, rng: np.random.Generator) -> tuple[list[dict[int, float]], list[dict[int, float]]]:
        """The losses of the baseline and of the head, by seed, at each size."""
        sizes = len(self.gains)
        seeds = [self.seeds] * sizes if isinstance(self.seeds, int) else self.seeds
        noises = [self.noise] * sizes if isinstance(self.noise, float) else self.noise
        baseline, head = [], []
        for loss, gain, number, noise in zip(self.baseline, self.nats, seeds, noises, strict=True):
            shared = rng.normal(0, noise * math.sqrt(self.common), number)
            one, other = rng.normal(0, noise * math.sqrt(1 - self.common), (2, number))
            baseline.append(dict(enumerate((loss + shared + one).tolist())))
            head.append(dict(enumerate((loss - gain + shared + other).tolist())))
        return baseline, head

    def true_slope(self) -> float:
        """The slope of a line through the true gains, each seed with one weight."""
        weights = np.broadcast_to(np.sqrt(self.seeds), len(self.gains))
        return float(np.polyfit(np.log2(self.axis), self.nats, 1, w=weights)[0])

    def true_worth(self, size: int, *, by_lines: bool) -> float:
        """x' / x of the true losses: by lines through them, or by the power law itself."""
        loss, gain, last = self.baseline[size], self.nats[size], len(self.gains) - 1
        if size == 0 and gain < 0:
            return 0.0  # less than the smallest size
        backwards = size == last and gain > 0
        goal = loss + gain if backwards else loss - gain
        if by_lines:  # np.interp wants numbers that grow
            logs = np.log(self.baseline)[::-1], np.log(self.axis)[::-1]
            ratio = math.exp(np.interp(math.log(goal), *logs)) / self.axis[size]
        else:
            ratio = ((loss - FLOOR) / (goal - FLOOR)) ** (1 / ALPHA)
        return 1 / ratio if backwards else ratio

    def true_share(self, size: int) -> tuple[float, float]:
        """In nats and in perplexity."""
        here, after = self.baseline[size : size + 2]
        head = here - self.nats[size]
        ppl = (math.exp(here) - math.exp(head)) / (math.exp(here) - math.exp(after))
        return (here - head) / (here - after), ppl


@dataclass
class Found:
    """Counts over planted ladders.

    Args:
        words: of the trend.
        gain: ladders with a word for the gain of a size; `every`: of each size.
        either: ladders with a word for a gain, or with one for a change of it.
        covered: whether an interval covers the truth, by its name, which ends with the size.
    """

    ladders: int
    words: Counter = field(default_factory=Counter)
    gain: int = 0
    every: int = 0
    either: int = 0
    covered: dict[str, list[bool]] = field(default_factory=dict)

    def add(self, name: str, estimate, truth: float) -> None:
        self.covered.setdefault(name, []).append(estimate.low <= truth <= estimate.high)

    def coverage(self, beginning: str) -> tuple[float, float, float]:
        """The lowest, mean and highest coverage over sizes of the intervals whose names begin so."""
        shares = [float(np.mean(each)) for name, each in self.covered.items() if name.startswith(beginning)]
        return min(shares), float(np.mean(shares)), max(shares)


def found_in(planted: Planted, *, ladders: int, draw: int) -> Found:
    """What `ladders` ladders with one truth are said to be. `draw`: the seed of their noise."""
    rng, found = np.random.default_rng(draw), Found(ladders)
    asks_worth = planted.floor is None or not math.isnan(planted.floor)
    for _ in range(ladders):
        baseline, head = planted.drawn(rng)
        pairs = means(baseline, head)
        each, slope = gains_and_trend(planted.axis, pairs, margin=MARGIN)
        shown = [gain.word in ("better", "worse") for gain in each]
        found.words[slope.word] += 1
        found.gain += any(shown)
        found.every += all(shown)
        found.either += any(shown) or slope.word in ("shrinks", "grows")
        found.add("trend", slope, planted.true_slope())
        for size, share in enumerate(shares(pairs)[:-1]):
            for name, estimate, truth in zip(
                ("share in nats", "share in ppl"), (share.nats, share.perplexity), planted.true_share(size), strict=True
            ):
                found.add(f"{name} {size}", estimate, truth)
        if asks_worth:
            _add_worths(found, planted, pairs)
    return found


def _add_worths(found: Found, planted: Planted, pairs) -> None:
    axis = Axis(baseline=planted.axis, head=planted.axis)
    for size, worth in enumerate(worths(axis, pairs, floor=planted.floor)):
        found.add(f"worth by lines {size}", worth.straight, planted.true_worth(size, by_lines=True))
        if worth.fitted is not None:
            found.add(f"worth by law {size}", worth.fitted, planted.true_worth(size, by_lines=False))


TREND, ZERO, CONSTANT = (0.04, 0.03, 0.02, 0.01), (0.0,) * 4, (0.02,) * 4
KINDS = ("trend", "share in nats", "share in ppl", "worth by lines", "worth by law")
STUDY = {
    "4 sizes": {},
    "3 sizes": {"sizes": 3},
    "2 sizes": {"sizes": 2},
    "4 sizes, 3 seeds": {"seeds": 3},
    "4 sizes, 6 seeds": {"seeds": 6},
    "seeds 6, 6, 4, 4": {"seeds": (6, 6, 4, 4)},
    "noise 0.2 %": {"noise": 0.002},
    "noise falls, 1.0 to 0.25 %": {"noise": (0.01, 0.0063, 0.004, 0.0025)},
    "half of the noise in common": {"common": 0.5},
    "sizes 3.2 times as large": {"step": 3.2},
    "floor given": {"floor": FLOOR},
}
WORDS = {  # gains -> the word that is expected
    (0.03, 0.02, 0.01): "shrinks",
    (0.02, 0.02, 0.02): "holds",
    (0.0, 0.0, 0.0): "undecided",
    (0.02, -0.02, 0.02): "undecided",
    (0.03, -0.02, 0.01): "undecided",
    (0.02, 0.02, -0.02, 0.02): "undecided",
    (0.04, 0.02, 0.01, 0.005): "shrinks",
    (0.04, 0.02, 0.01): "shrinks",
    (-0.015, -0.005, 0.005, 0.015): "grows",
}


def main(ladders: int = 1_000) -> None:
    print(f"{ladders:,} ladders each; seed noise 0.5 % of each trial, 4 seeds. Shares of ladders in %.\n")
    print("| | zero: gain | zero: trend | zero: either | constant: trend | 1 % a doubling: found | coverage |")
    print("|---|---|---|---|---|---|---|")
    for name, changes in STUDY.items():
        changes = {"floor": None, **changes}
        sizes = changes.pop("sizes", 4)
        zero, constant, planted = (
            found_in(Planted(gains=gains[-sizes:], **changes), ladders=ladders, draw=draw)
            for draw, gains in enumerate((ZERO, CONSTANT, TREND), start=1)
        )
        false = [sum(found.words[word] for word in ("shrinks", "grows")) for found in (zero, constant)]
        counts = (zero.gain, false[0], zero.either, false[1], planted.words["shrinks"])
        covered = []
        for kind in KINDS[: len(KINDS) if sizes == 4 else -1]:
            lows, _, highs = zip(*(found.coverage(kind) for found in (zero, constant, planted)), strict=True)
            covered.append(f"{kind} {100 * min(lows):.1f} to {100 * max(highs):.1f}")
        print(
            f"| {name} | {' | '.join(f'{100 * each / ladders:.1f}' for each in counts)} | {'; '.join(covered)} |",
            flush=True,
        )
    print("\n| gains in % | expected | found |\n|---|---|---|")
    for gains_of_sizes, expected in WORDS.items():
        found = found_in(Planted(gains=gains_of_sizes), ladders=ladders, draw=4)
        words = ", ".join(f"{word} {100 * number / ladders:.1f}" for word, number in found.words.most_common())
        print(f"| {', '.join(f'{100 * each:g}' for each in gains_of_sizes)} | {expected} | {words} |", flush=True)


if __name__ == "__main__":
    main()
