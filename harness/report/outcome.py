"""The outcome of a suite in words, and whether it can be trusted."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from harness.extensions import provided
from harness.printable import counted
from harness.report import comparison_notes, convergence, notes, printed_numbers
from harness.report.columns import change
from harness.report.content import COARSE, Cell
from harness.report.findings import Findings, percent
from harness.report.grouping import grouped
from harness.report.next_step import next_step
from harness.report.ranks import rankable
from harness.report.row_facts import RowFacts, ratio, row_name, time_of
from harness.report.statistics import RANK_SEEDS, MeanDifference
from harness.report.verdicts import (
    DISAGREES,
    STRONGEST,
    Compared,
    Verdict,
    difference,
    nats,
    shared_seeds,
    splits_disagree,
)

DECIDED = ("better", "worse", "equivalent")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
BEGIN = ("nothing", "batches", "the", "only")  # further first words of sentences, which are no names of heads
NAMED, LISTED = 2, 6  # heads that a sentence names; that it lists in brackets after their number; more are counted
MOST = 4  # corpora and backbones in a text


def sentences(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    """The outcome in sentences, after what makes the numbers doubtful, if the suite says so."""
    return [*notes.of_doubt(findings.evidence.suite), *_outcome(findings, lines)]


def _outcome(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    ladders = provided("harness.ladder.words:sentences", lambda findings, lines: [])
    if of_ladders := ladders(findings, lines):
        return of_ladders
    groups = grouped((each.row.group, each) for each in findings.compared_of(lines))
    several = len({row.group for row in lines if not row.is_ngram}) > 1
    found = []
    for (corpus, backbone), compared in list(groups.items())[:MOST]:
        first, *rest = [*_of_group(compared, findings), *_left_out(compared, lines)]
        if several:
            found.append(" ".join([f"On {corpus} with {backbone}: {first}", *map(_capital, rest)]))
        else:
            found += map(_capital, [first, *rest])
    trials = findings.evidence.trials
    if findings.evidence.suite.table.baseline is not None and not groups and 0 < trials.ok < trials.planned:
        found = [f"Nothing is decided: {trials.ok:,} of {counted(trials.planned, 'trial')} {_be(trials.ok)} ok."]
    if not any(each.judged.word in DECIDED for compared in groups.values() for each in compared):
        return [*found, *_lowest_means(lines)]
    return [*found, *_more(len(groups))]


def in_a_line(findings: Findings) -> str:
    """The outcome of all rows in one line, without a full stop at its end."""
    found = _outcome(findings, findings.rows) or ["no trial with a perplexity is finished"]
    return " ".join([*notes.of_doubt(findings.evidence.suite), *found]).removesuffix(".")


def _of_group(compared: Sequence[Compared], findings: Findings) -> list[str]:
    judged = [each for each in compared if not each.is_control]
    if not judged:
        return [f"only controls of {_named(compared[0].control.head)} have a result."]
    words = grouped((each.judged.word, each) for each in judged)
    control, found = _control(judged), []
    if better := words.get("better", []):
        found.append("; ".join([_beats(better), *_best_of(better, findings), *_costs_of(better, findings)]))
        found += findings.evidence.suite.control_notes
    elif len(judged) > 1:
        found.append(f"no head is shown to beat {control}")
    if worse := words.get("worse", []):
        found.append(f"{_who(worse)} {_be(len(worse))} worse than {control} by {_range(worse)}{_limits(worse)}")
        found += _unmixed_too(compared, worse)
    if equal := words.get("equivalent", []):
        within = f"within {100 * findings.evidence.suite.table.margin:g} %{_limits(equal)}"
        found.append(f"{_who(equal, listed=True)} {_be(len(equal))} equivalent to {control}, {within}")
    open_, few = words.get("undecided", []), words.get("too few seeds", [])
    unclear = [each for each in open_ if not each.judged.reasons]  # nothing but the seeds prevents a verdict
    if len(unclear) == len(judged):
        return [f"{each}." for each in (_not_shown(judged), *_weak_baseline(compared, findings))]
    if len(open_) + len(few) == len(judged):
        reasons = dict.fromkeys(why or "more seeds are needed" for why in _reasons(open_))
        if few:
            reasons[f"{counted(max(each.difference.n for each in few), 'seed')}, {RANK_SEEDS} are needed"] = None
        return [f"nothing is decided: {'; '.join(reasons)}."]
    if rest := open_ + few:
        found.append(f"{_who(rest)} {_be(len(rest))} undecided")
    if not better and (ratios := [time for time, _ in _times(judged, findings)]):
        low, high = (f"{choose(ratios):.1f}" for choose in (min, max))
        found.append(f"batches take {low if low == high else f'{low} to {high}'} times the baseline's time")
    found += _weak_baseline(compared, findings)
    return [f"{each}." for each in found]


def _unmixed_too(compared: Sequence[Compared], worse: Sequence[Compared]) -> list[str]:
    """'MoS 1, which mixes nothing, is behind it by 11.4 % [10.6, 12.2], too': what a mixture's map costs alone."""
    if not any((each.row.params_of("head").get("num_mixtures") or 1) > 1 for each in worse):
        return []
    single = [each for each in compared if each.is_control and each.row.params_of("head").get("num_mixtures") == 1]
    behind = [each for each in single if each.difference.n >= RANK_SEEDS and each.difference.low > 0]
    return [
        f"{_named(each.row.head)}, which mixes nothing, is behind it by {_size(each.difference)}, too"
        for each in behind
    ]


def _control(judged: Sequence[Compared]) -> str:
    """What heads are compared with: 'softmax', or of several controls 'softmax (the strongest control)'."""
    control = judged[0].control.head
    return f"{control} (the {STRONGEST})" if len(judged[0].against) > 1 else _named(control)


def _not_shown(judged: Sequence[Compared]) -> str:
    """'no head is shown to beat softmax; the lowest one, MoC 5, is at -1.0 % [-1.9, -0.0]: more seeds are
    needed', or 'validation disagrees'.
    """
    lowest = min(judged, key=lambda each: each.difference.mean)
    opposite = splits_disagree(lowest.row, lowest.control, lowest.test)
    found = f"{_change(lowest.difference)}: {DISAGREES if opposite else 'more seeds are needed'}"
    if len(judged) == 1:
        return f"{_named(lowest.row.head)} is not shown to beat {_control(judged)}, {found}"
    return f"no head is shown to beat {_control(judged)}; the lowest one, {lowest.row.head}, is at {found}"


def _beats(better: Sequence[Compared]) -> str:
    beat = "beats" if len(better) == 1 else "beat"
    return f"{_who(better, listed=True)} {beat} {_control(better)} by {_range(better)}{_limits(better)}"


def _weak_baseline(compared: Sequence[Compared], findings: Findings) -> list[str]:
    """That the baseline is behind another control, and that the lowest head seems better than it is."""
    baseline, control = findings.baselines[compared[0].row.group], compared[0].control
    behind = next((each for each in compared if each.row is baseline), None)
    if behind is None or behind.difference.n < RANK_SEEDS or behind.difference.low <= 0:
        return []
    if behind.difference.mean < nats(findings.evidence.suite.table.margin):
        return []  # no difference of interest
    found = f"the baseline, {baseline.head}, is weak: {_range([behind])} behind {_named(control.head)}"
    lower = [each for each in compared if not each.is_control and each.judged.word != "better"]
    lowest = min(lower, key=lambda each: each.difference.mean, default=None)
    if lowest is not None and (seeds := shared_seeds(lowest.row, baseline)):
        against = difference(lowest.row, baseline, seeds, lowest.test)
        if against.high is not None and against.high < 0:
            lower_by = f"{_named(lowest.row.head)} is {_size(against)} lower than the baseline"
            found += f"; {lower_by}, and not shown to beat {_named(control.head)}"
    return [found.rstrip(",")]


def decided(findings: Findings) -> dict[tuple[str, str], str]:
    """Corpus and backbone -> what is decided of them, in a few words: 'no head is shown to beat softmax'; '' where
    nothing is.
    """
    found = dict.fromkeys((row.group for row in findings.rows if not row.is_ngram), "")
    doubtful = ", in doubt" if notes.of_doubt(findings.evidence.suite) else ""
    for group, compared in grouped((each.row.group, each) for each in findings.compared_of(findings.rows)).items():
        if any(each.judged.word in DECIDED for each in compared):
            better = [each for each in compared if each.judged.word == "better"]
            said = _beats(better) if better else _of_group(compared, findings)[0].removesuffix(".")
            found[group] = f"{said}{doubtful}"
    return found


def _capital(sentence: str) -> str:
    """A sentence as it begins a line; the name of a head stays as it is."""
    first = sentence.split()[0]
    return f"{first.capitalize()}{sentence[len(first) :]}" if first in (*NUMBERS, *BEGIN) else sentence


def _who(some: Sequence[Compared], *, listed: bool = False) -> str:
    """'softmax and moc', or 'three heads', or if `listed` 'three heads (softmax, moc, mos)'."""
    if len(some) <= NAMED:
        return " and ".join(_named(each.row.head) for each in some)
    return f"{_number(len(some))} heads" + (f" ({_list(some)})" if listed and len(some) <= LISTED else "")


def _list(some: Sequence[Compared]) -> str:
    """'softmax, moc', or 'MFS; softmax, rank 16' where a name has a comma."""
    names = [each.row.head for each in some]
    return ("; " if any("," in name for name in names) else ", ").join(names)


def _named(head: str) -> str:
    """A head's name inside a sentence: 'softmax', or 'softmax, rank 16,' with a comma after its apposition."""
    return f"{head}," if "," in head else head


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def _range(some: Sequence[Compared]) -> str:
    """'1.6 to 3.0 %': the sizes of the changes of perplexity; of a single one with its interval, '1.6 % [0.9, 2.3]'."""
    if len(some) == 1:
        return _size(some[0].difference)
    sizes = [f"{abs(percent(each.difference.mean)):.1f}" for each in some]
    low, high = min(sizes, key=float), max(sizes, key=float)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _change(found: MeanDifference) -> str:
    """'-1.0 % [-1.9, 0.0]'."""
    return change(found.mean, found.low, found.high).text


def _size(found: MeanDifference) -> str:
    """'1.6 % [0.9, 2.3]': the size of a change of perplexity with its interval, if there is one."""
    size = f"{abs(percent(found.mean)):.1f} %"
    if found.low is None:
        return size
    ends = sorted(percent(end) * math.copysign(1, found.mean) for end in (found.low, found.high))
    return f"{size} [{', '.join(f'{round(end, 1) + 0.0:.1f}' for end in ends)}]"


def _limits(some: Sequence[Compared]) -> str:
    """' at 6 epochs (none converged)', ' at the chosen settings (coarse tuning for two of them)': what limits these
    comparisons to the budget and to the tuning of the suite.
    """
    limited = [each for each in some if each.judged.reasons]
    if not limited:
        return ""
    epochs = {each.row.spec.train.epochs for each in limited if each.judged.reasons != (COARSE,)}
    least = f"{min(epochs):g} to " if len(epochs) > 1 else ""
    at = f"{least}{counted(max(epochs), 'epoch')}" if epochs else "the chosen settings"
    return f" at {at} ({'; '.join(_reasons(limited, of=len(some)))})"


def _reasons(some: Sequence[Compared], of: int = 0) -> list[str]:
    """What limits some comparisons: 'neither converged', of several rows 'none converged'; '6 of 6 seeds collapsed';
    'coarse tuning for two of them', if it is not so for all `of` them.
    """
    found = grouped((reason, each) for each in some for reason in each.judged.reasons or ("",))
    return [
        _words_of(reason, rows) + (f" for {_number(len(rows))} of them" if len(rows) < of else "")
        for reason, rows in found.items()
    ]


def _words_of(reason: str, some: Sequence[Compared]) -> str:
    if reason == "collapsed":
        number = sum(len(convergence.collapsed_seeds(each.row)) for each in some)
        return f"{number} of {counted(sum(len(each.row.ok_seeds) for each in some), 'seed')} collapsed"
    return reason.replace("neither", "none") if len(some) > 1 else reason


def _best_of(better: Sequence[Compared], findings: Findings) -> list[str]:
    if len(better) == 1:
        return []
    best = [each for each in better if findings.ranks.get(each.row) == "best"]
    alike = [row for row in findings.rows if row.group == better[0].row.group]
    devices = {record.environment.device for row in alike for record in row.ok}
    if len(best) == 1 and len(devices) == 1:  # ranks are of one device
        return [f"{_named(best[0].row.head)} is the best of them"]
    return ["which of them is the best is not decided"]


def _left_out(compared: Sequence[Compared], lines: Sequence[RowFacts]) -> list[str]:
    """The rows that are compared with nothing, because they, or the seeds of the baseline, have failed or not run."""
    known = {row for each in compared for row in (each.row, each.control)}
    group = compared[0].row.group
    heads = [row for row in lines if row.group == group and row.compat is None and not row.is_ngram]
    number = sum(row not in known for row in heads)
    return [f"{_number(number)} {'head' if number == 1 else 'heads'} {_be(number)} not compared."] if number else []


def _times(some: Sequence[Compared], findings: Findings) -> list[tuple[float, RowFacts]]:
    """What a batch of each row costs as a ratio to that of the baseline; [] where one is not known."""
    timings = findings.evidence.timings
    reference = time_of(findings.baselines[some[0].row.group], "train_ms_per_batch", timings)
    times = [(ratio(time_of(each.row, "train_ms_per_batch", timings), reference), each.row) for each in some]
    return [] if any(time is None for time, _ in times) else times


def _costs_of(better: Sequence[Compared], findings: Findings) -> list[str]:
    """What a batch of a row costs as a ratio to that of the baseline, or of the cheapest and the dearest of several."""
    times = _times(better, findings)
    if not times:
        return []
    (low, cheapest), (high, dearest) = (choose(times, key=lambda one: one[0]) for choose in (min, max))
    if len(better) == 1:
        return [f"it takes {low:.1f} times the baseline's time a batch"]
    if f"{low:.1f}" == f"{high:.1f}":
        return [f"they take {low:.1f} times the baseline's time a batch"]
    cost = f"{_named(cheapest.head)} is the cheapest of them with {low:.1f} times the baseline's time a batch"
    said = [f"{cost}, {_named(dearest.head)} the most expensive with {high:.1f} times"]
    time, lowest_mean = min(times, key=lambda one: statistics.fmean(one[1].values("test_ppl")))
    if lowest_mean not in (cheapest, dearest):
        said.append(f"{lowest_mean.head}, which has the lowest mean, takes {time:.1f} times")
    return said


def _lowest_means(lines: Sequence[RowFacts]) -> list[str]:
    found = []
    for row, count in lowest(lines):
        rows = "rows" if rankable(row) or row.is_ngram else "rows, none of which can be ranked"
        of = f"Lowest mean test perplexity of {count} {rows}" if count > 1 else "Test perplexity"
        found.append(f"{of}: {_mean_and_place(row)}.")
    return found[:MOST] + _more(len(found))


def _more(pairs: int) -> list[str]:
    more = pairs - MOST
    return [f"{counted(more, 'more pair')} of corpus and backbone {_be(more)} in the table."] if more > 0 else []


def lowest(lines: Sequence[RowFacts]) -> list[tuple[RowFacts, int]]:
    """The row with the lowest mean test perplexity of each corpus and backbone, and of how many rows it is that.

    Rows with a compatibility switch are left out: what they compute need not be a perplexity. Where some rows of the
    corpus and backbone can be ranked, only these count. Otherwise collapsed rows do not, unless all rows are.
    """
    groups = grouped((row.group, row) for row in lines if row.values("test_ppl") and row.compat is None)
    found = []
    for rows in groups.values():
        judged = list(filter(rankable, rows)) or [row for row in rows if not convergence.collapsed(row)] or rows
        found.append((min(judged, key=lambda row: statistics.fmean(row.values("test_ppl"))), len(judged)))
    return found


def _mean_and_place(row: RowFacts) -> str:
    """'mos(num_mixtures=15), 88.58 ± 0.31 (3 seeds), on ptb with lstm'."""
    values = row.values("test_ppl")
    seeds = "" if row.is_ngram else f" ({counted(len(values), 'seed')})"
    where = "" if row.is_ngram else f" with {row.backbone}"
    return f"{row.head}, {Cell.mean(values, 2).text}{seeds}, on {row.corpus}{where}"


def summary(findings: Findings, lines: Sequence[RowFacts]) -> dict[str, list[tuple[str, str]]]:
    """Sentences for a reader who sees the page for the first time, under three headings, each with a command or ''."""
    return {
        "Result": [(sentence, "") for sentence in sentences(findings, lines)],
        "Can it be trusted?": [(sentence, "") for sentence in _trust(findings, lines)],
        "What comes next": [step] if (step := next_step(findings, lines)) else [],
    }


def _trust(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    """What a reader would ask, each with a tick where nothing limits the numbers, or an exclamation mark."""
    evidence, ok = findings.evidence, findings.evidence.trials.ok
    made = [row for row in lines if row.ok_seeds]
    trained = any(not row.is_ngram for row in made)
    limits = [
        (
            "Every trial that is ok has converged" if trained else "",
            [
                ("not converged (↓): a larger budget may change their order", convergence.mostly_unconverged),
                ("not converged in some seeds (↓)", convergence.partly_unconverged),
            ],
        ),
        ("", [("collapsed (↓): hardly better than the frequencies of words, or worse", convergence.collapsed)]),
        (
            "No row is outdated by a later change of code",
            [("made by code that has changed since (¶)", lambda row: row.outdated)],
        ),
        (
            "Every perplexity is certified",
            [
                ("not certified (°)", lambda row: row.uncertified),
                ("certified by earlier, weaker rules (°)", lambda row: row.certified_earlier),
            ],
        ),
    ]
    found = [(ok == evidence.trials.planned, f"{ok:,} of {counted(evidence.trials.planned, 'trial')} {_be(ok)} ok.")]
    for good, faults in limits if made else ():
        of_faults = [(list(filter(applies, made)), fault) for fault, applies in faults]
        said = [f"{_of_rows(some, lines)} {_be(len(some))} {fault}." for some, fault in of_faults if some]
        found += [(False, text) for text in said] or ([(True, f"{good}.")] if good else [])
    found += [(False, text) for text in notes.of_doubt(evidence.suite)]
    found += [(False, text) for say in (_unjudged, _undecided, _tuned) for text in say(findings, lines)]
    if answers := [printed_numbers.together(each) for each in map(findings.reproduced.get, lines) if each]:
        yes = sum(answer in printed_numbers.YES for answer in answers)
        of_rows = counted(len(answers), "row")
        text = f"{yes} of {of_rows} with a printed number and a tolerance {_be(yes)} reproduced so far."
        found.append((yes == len(answers), text))
    return [f"{'✓' if good else '!'} {text}" for good, text in sorted(found, key=lambda each: not each[0])]


def _of_rows(some: Sequence[RowFacts], lines: Sequence[RowFacts]) -> str:
    """'3 of 10 rows'; '1 of 10 rows (MoS 5)' where few are named."""
    named = f" ({'; '.join(row_name(row, list(lines)) for row in some)})" if len(some) <= NAMED < len(lines) else ""
    return f"{len(some)} of {counted(len(lines), 'row')}{named}"


def _unjudged(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    compared = findings.compared_of(lines)
    if sum(bool(row.ok_seeds) and not row.is_ngram for row in lines) < 2:
        return []
    if not compared:
        return ["The rows are compared with no baseline."]
    if any(each.judged.word != "too few seeds" for each in compared):
        return []
    most = max(each.difference.n for each in compared)
    why = f"that needs {RANK_SEEDS} seeds, and the comparisons have {most} at most"
    if findings.evidence.suite.ladder is not None:
        return [f"Of one size alone no row is called better or worse: {why}. The words on all sizes are by t tests."]
    return [f"No row is called better or worse: {why}."]


def _undecided(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    """'7 of 9 comparisons with the baseline are undecided, which does not mean equal (coarse tuning in 5; ...).'"""
    compared = findings.compared_of(lines)
    reasons = Counter(_missing(each.judged) for each in compared if each.judged.word == "undecided")
    if not reasons:
        return []
    why = "; ".join(f"{reason} in {count}" for reason, count in reasons.most_common())
    of_all, number = counted(len(compared), "comparison"), reasons.total()
    return [f"{number} of {of_all} with the baseline {_be(number)} undecided, which does not mean equal ({why})."]


def _missing(judged: Verdict) -> str:
    """What would decide a comparison: 'more seeds are needed' where nothing but the evidence is missing."""
    if judged.limits:  # not converged, or collapsed
        return "more seeds or longer training are needed"
    return judged.reason or "more seeds are needed"


def _tuned(findings: Findings, lines: Sequence[RowFacts]) -> list[str]:
    """That the settings are not tuned; or how much lower the rows may be at values between those that tuning tried."""
    gaps = [row.tuning.gap for row in lines if row.tuned]
    if findings.evidence.suite.tune is None and sum(bool(row.ok_seeds) and not row.is_ngram for row in lines) > 1:
        return [comparison_notes.NOT_TUNED]
    if not gaps:
        return []
    known = [-percent(-gap) for gap in gaps if math.isfinite(gap)]
    unknown = [row for row in lines if row.tuned and not math.isfinite(row.tuning.gap)]
    parts = [f"by up to {max(known):.1f} %"] if known else []
    parts += [f"{_of_rows(unknown, lines)} by an unknown amount"] if unknown else []
    return [
        f"Between the values that tuning tried, rows may be lower: {', '.join(parts)} (tuning gap). Verdicts, stars "
        "and ranks allow for it, the means do not."
    ]


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
