"""The outcome of a suite in words, made from its findings by rules: who beats the baseline and by how much, which of
them is the best and which the cheapest, who is worse, and how many rows are undecided.
"""

import statistics
from collections.abc import Sequence

from harness.printable import counted
from harness.report.evidence import convergence
from harness.report.evidence.comparisons import Compared
from harness.report.evidence.findings import Findings, percent
from harness.report.evidence.multiple import RANK_SEEDS
from harness.report.evidence.ranks import rankable
from harness.report.evidence.table_rows import Row
from harness.report.evidence.times import ratio, time_of

DECIDED = ("better", "worse", "equivalent")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NAMED = 2  # heads that a sentence names; more are counted
MOST = 4  # corpora and backbones in a text


def sentences(findings: Findings, lines: Sequence[Row]) -> list[str]:
    """The outcome in sentences.

    Args:
        lines: the rows that it is about.
    """
    shown = set(map(id, lines))
    groups: dict[tuple[str, str], list[Compared]] = {}
    for each in findings.compared.values():
        if id(each.row) in shown:
            groups.setdefault(each.row.group, []).append(each)
    several = len({row.group for row in lines if not row.is_ngram}) > 1
    found = []
    for (corpus, backbone), compared in list(groups.items())[:MOST]:
        first, *rest = [*_of_group(compared, findings), *_left_out(compared, lines)]
        if several:
            found.append(" ".join([f"On {corpus} with {backbone}: {first}", *map(_capital, rest)]))
        else:
            found += map(_capital, [first, *rest])
    if not any(each.judged.word in DECIDED for compared in groups.values() for each in compared):
        return [*found, *_lowest_means(lines)]
    return [*found, *_more(len(groups))]


def in_a_line(findings: Findings) -> str:
    """The outcome of all rows in one line, without a full stop at its end."""
    return " ".join(sentences(findings, findings.lines)).removesuffix(".") or "no trial with a perplexity is finished"


def _of_group(compared: Sequence[Compared], findings: Findings) -> list[str]:
    words: dict[str, list[Compared]] = {}
    for each in compared:
        words.setdefault(each.judged.word, []).append(each)
    baseline, found = compared[0].baseline.head, []
    if better := words.get("better", []):
        beat = "beats" if len(better) == 1 else "beat"
        parts = [f"{_who(better)} {beat} {baseline} by {_range(better)}{_limits(better)}", *_best_of(better, findings)]
        found.append("; ".join([*parts, *_costs_of(better, findings)]))
    if worse := words.get("worse", []):
        found.append(f"{_who(worse)} {_be(len(worse))} worse than {baseline} by {_range(worse)}{_limits(worse)}")
    if equal := words.get("equivalent", []):
        margin = 100 * findings.evidence.suite.table.margin
        found.append(f"{_who(equal)} {_be(len(equal))} equivalent to {baseline}, within {margin:g} %{_limits(equal)}")
    open_, few = words.get("undecided", []), words.get("too few seeds", [])
    if not found:
        return [f"nothing is decided: {_why(open_, few)}."]
    if rest := open_ + few:
        found.append(f"{_who(rest)} {_be(len(rest))} undecided")
    return [f"{each}." for each in found]


def _capital(sentence: str) -> str:
    """A sentence as it begins a line; the name of a head stays as it is."""
    first = sentence.split()[0]
    return f"{first.capitalize()}{sentence[len(first) :]}" if first in (*NUMBERS, "nothing") else sentence


def _who(some: Sequence[Compared]) -> str:
    """'softmax and moc', or 'five heads'."""
    if len(some) <= NAMED:
        return " and ".join(each.row.head for each in some)
    return f"{_number(len(some))} heads"


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def _range(some: Sequence[Compared]) -> str:
    """'1.6 to 3.0 %': the sizes of the changes of perplexity."""
    sizes = [f"{abs(percent(each.difference.mean)):.1f}" for each in some]
    low, high = min(sizes, key=float), max(sizes, key=float)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _limits(some: Sequence[Compared]) -> str:
    """' at 6 epochs, where neither has converged': what limits these comparisons to the budget of the suite."""
    limited = [each for each in some if each.judged.why]
    if not limited:
        return ""
    epochs = dict.fromkeys(counted(each.row.trials[0].train.epochs, "epoch") for each in limited)
    of_these = "" if len(limited) == len(some) else f" for {_number(len(limited))} of them"
    why = dict.fromkeys(each.judged.why for each in limited)
    return f" at {' or '.join(epochs)} ({'; '.join(why)}{of_these})"


def _best_of(better: Sequence[Compared], findings: Findings) -> list[str]:
    """Which of several rows is the best, by their ranks."""
    ranks = {id(findings.lines[index]): rank for index, rank in findings.ranks.items()}
    best = [each for each in better if ranks.get(id(each.row)) == "best"]
    ties = [each for each in better if ranks.get(id(each.row)) == "tie"]
    if len(better) == 1:
        return []
    if len(best) == 1 and len(_devices(findings.lines, best[0].row)) == 1:
        return [f"{best[0].row.head} is the best of the heads"]
    return ["which of the heads is the best is not decided"] if len(ties) > 1 else []


def _devices(lines: Sequence[Row], of: Row) -> set[str]:
    """Where the rows of a row's corpus and backbone were trained: ranks are of one device."""
    return {row.records[seed].environment.device for row in lines if row.group == of.group for seed in row.ok_seeds}


def _left_out(compared: Sequence[Compared], lines: Sequence[Row]) -> list[str]:
    """The rows that are compared with nothing, because they, or the seeds of the baseline, have failed or not run."""
    known = {id(each.row) for each in compared} | {id(each.baseline) for each in compared}
    group = compared[0].row.group
    heads = [row for row in lines if row.group == group and row.compat is None and not row.is_ngram]
    number = sum(id(row) not in known for row in heads)
    return [f"{_number(number)} {'head' if number == 1 else 'heads'} {_be(number)} not compared."] if number else []


def _costs_of(better: Sequence[Compared], findings: Findings) -> list[str]:
    """What a batch of a row costs as a ratio to that of the baseline, or of the cheapest and the dearest of several."""
    timings = findings.evidence.timings
    reference = time_of(better[0].baseline, "train_ms_per_batch", timings)
    times = [(ratio(time_of(each.row, "train_ms_per_batch", timings), reference), each.row) for each in better]
    if any(time is None for time, _ in times):
        return []
    (low, cheapest), (high, dearest) = (choose(times, key=lambda one: one[0]) for choose in (min, max))
    if len(better) == 1:
        return [f"it takes {low:.1f} times the baseline's time a batch"]
    if f"{low:.1f}" == f"{high:.1f}":
        return [f"they take {low:.1f} times the baseline's time a batch"]
    cost = f"{cheapest.head} is the cheapest of them with {low:.1f} times the baseline's time a batch"
    return [f"{cost}, {dearest.head} the dearest with {high:.1f} times"]


def _why(open_: Sequence[Compared], few: Sequence[Compared]) -> str:
    """Why nothing is decided: '2 seeds, 6 are needed', or the reasons of the verdicts."""
    reasons = dict.fromkeys(each.judged.why or "more seeds are needed" for each in open_)
    if few:
        reasons[f"{counted(max(each.difference.n for each in few), 'seed')}, {RANK_SEEDS} are needed"] = None
    return "; ".join(reasons)


def _lowest_means(lines: Sequence[Row]) -> list[str]:
    found = [
        f"{f'Lowest mean test perplexity of {count} {_kind(row)}' if count > 1 else 'Test perplexity'}: "
        f"{mean_and_place(row)}."
        for row, count in lowest(lines)
    ]
    return found[:MOST] + _more(len(found))


def _more(pairs: int) -> list[str]:
    more = pairs - MOST
    return [f"{counted(more, 'more pair')} of corpus and backbone {_be(more)} in the table."] if more > 0 else []


def lowest(lines: Sequence[Row]) -> list[tuple[Row, int]]:
    """The row with the lowest mean test perplexity of each corpus and backbone, and of how many rows it is that.

    Rows with a compatibility switch are left out: what they compute need not be a perplexity. Where some rows of the
    corpus and backbone can be ranked, only these count. Otherwise collapsed rows do not, unless all rows are.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in lines:
        if row.values("test_ppl") and row.compat is None:
            groups.setdefault(row.group, []).append(row)
    groups = {key: _best_judged(rows) for key, rows in groups.items()}
    means = {id(row): statistics.fmean(row.values("test_ppl")) for rows in groups.values() for row in rows}
    return [(min(rows, key=lambda row: means[id(row)]), len(rows)) for rows in groups.values()]


def _best_judged(rows: list[Row]) -> list[Row]:
    return list(filter(rankable, rows)) or [row for row in rows if not convergence.collapsed(row)] or rows


def mean_and_place(row: Row) -> str:
    """'mos(num_mixtures=15), 88.58 ± 0.31 (3 seeds), on ptb with lstm'."""
    values = row.values("test_ppl")
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    seeds = "" if row.is_ngram else f" ({counted(len(values), 'seed')})"
    where = "" if row.is_ngram else f" with {row.backbone}"
    return f"{row.head}, {statistics.fmean(values):.2f}{spread}{seeds}, on {row.corpus}{where}"


def _kind(row: Row) -> str:
    return "rows" if rankable(row) or row.is_ngram else "rows, none of which can be ranked"


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
