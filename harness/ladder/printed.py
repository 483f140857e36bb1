"""What printed numbers say of a ladder, without any training: a head's share of the step to the next size."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.findings import Findings
from harness.report.grouping import grouped
from harness.report.printed_numbers import PrintedCell, PrintedNumbers, Reproduction
from harness.report.row_facts import RowFacts, of_head

SHARE = "step_share_percent"  # the metric of a printed cell


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedShare:
    """The printed gain of a head at a size as a part of the baseline's step to the next size, in perplexity.

    Args:
        row: of the head at the size.
        following: the name of the backbone at the next size.
        share: (p - p_head) / (p - p_next), p of the baseline.
        claim: the share that is printed, with ours; None where none is.
    """

    row: RowFacts
    following: str
    share: float
    claim: Reproduction | None

    def __str__(self) -> str:
        """'15.2 % of the step from GPT-2 85.1M to GPT-2 302M on OpenWebText [printed: 15 %, reproduced: yes]'."""
        step = f"the step from {self.row.backbone} to {self.following} on {self.row.corpus}"
        found = f"{100 * self.share:.1f} % of {step}"
        if self.claim is None:
            return found
        return f"{found} [printed: {self.claim.printed.value} %, reproduced: {self.claim.answer}]"


def sentences(findings: Findings, rows: Sequence[RowFacts]) -> list[str]:
    """A sentence for each head: 'MFS, by printed numbers: 15.2 % of the step from ..., 16.4 % of ...'."""
    of_heads = grouped((each.row.head, each) for each in shares(findings) if each.row in rows)
    return [f"{head}, by printed numbers: {', '.join(map(str, found))}." for head, found in of_heads.items()]


def shares(findings: Findings) -> list[PrintedShare]:
    """The shares of all heads of a suite with a ladder whose perplexities are printed at two neighbouring sizes."""
    suite, printed = findings.evidence.suite, findings.evidence.printed
    if suite.ladder is None:
        return []
    known = {(row.planned.family[:2], row.planned.size, row.head): row for row in findings.rows}
    found = []
    for row in findings.rows:
        ladder, size = row.planned.family[:2], row.planned.size
        alike = [each for (of, at, _), each in known.items() if (of, at) == (ladder, size)]
        baseline = next(iter(of_head(alike, suite.table.baseline)), None)
        following = baseline and known.get((ladder, size + 1, baseline.head))
        if baseline is None or following is None or row is baseline:
            continue
        numbers = [_perplexity(each, printed) for each in (baseline, row, following)]
        if None in numbers or numbers[0] <= numbers[2]:
            continue
        ours, theirs, larger = numbers
        share = (ours - theirs) / (ours - larger)
        claim = printed.find(row.spec, row.params, SHARE)
        made = None if claim is None else _compared(claim, share)
        found.append(PrintedShare(row=row, following=following.backbone, share=share, claim=made))
    return found


def _perplexity(row: RowFacts, printed: PrintedNumbers) -> float | None:
    cell = printed.find(row.spec, row.params, "test_ppl")
    return None if cell is None else cell.number


def _compared(claim: PrintedCell, share: float) -> Reproduction:
    values = (100 * share,)
    return Reproduction(printed=claim, metric="share of the step", values=values, seeds=1, finished=1, changed=False)
