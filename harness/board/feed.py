"""The feed of a site: boards, their rows and history, and submissions, as JSON for other programs.

docs/results_feed.md has its keys.
"""

import json
from collections.abc import Sequence
from typing import Any

import harness
from harness.board.boards import Gain, HeadOnBoard, Received, heads_of, history, sizes
from harness.board.row_json import difference_json, row_json
from harness.extensions import provided
from harness.machine.environment import commit
from harness.report.row_facts import RowFacts
from harness.report.study import Study

SCHEMA = 1


def results_feed(boards: Sequence[Study], received: Sequence[Received]) -> str:
    """The feed; unrounded numbers, null for what is not known."""
    as_json = provided("harness.submissions.pages:as_json", None)
    content = {
        "schema": SCHEMA,
        "harness": harness.__version__,
        "commit": commit(),
        "boards": [_board(each, received) for each in boards],
        "submissions": [] if as_json is None else [as_json(each) for each in received],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _board(found: Study, received: Sequence[Received]) -> dict[str, Any]:
    firsts = []
    for day, head in history(found, received):
        of = head.submission
        firsts.append(
            {
                "since": day,
                "label": head.name,
                "gains": list(map(_gain, head.gains)),
                "submission": None if of is None else of.page,
            }
        )
    return {
        "name": found.suite.name,
        "version": found.suite.version,
        "page": f"boards/{found.suite.name}.html",
        "sizes": [{"corpus": corpus, "backbone": backbone} for corpus, backbone in sizes(found)],
        "rows": [_head(found, each) for each in heads_of(found, received)],
        "history": firsts,
    }


def _head(found: Study, head: HeadOnBoard) -> dict[str, Any]:
    specs = [row.spec.head for row in head.rows if row is not None]
    pairs = zip(head.rows, head.gains, strict=True)
    return {
        "label": head.name,
        "head": str(specs[0]),
        "submission": None if head.submission is None else head.submission.page,
        "sizes": [None if row is None else _size(found, row, gain) for row, gain in pairs],
    }


def _size(found: Study, row: RowFacts, gain: Gain | None) -> dict[str, Any]:
    about = row_json(row, found.evidence.timings)
    compared, mflop = found.findings.compared.get(row), row.values("mflop_per_token")
    return {
        **{name: about[name] for name in ("test_ppl", "sd", "seeds", "params_total")},
        "gflop_per_token": mflop[0] / 1000 if mflop else None,
        "gain": _gain(gain),
        "verdict": None if compared is None else compared.verdict,
    }


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    """The gain and its interval in nats, and the number of pairs of seeds; these are null of the strongest control."""
    if gain is None:
        return None
    return difference_json(gain.difference) or {"nats": gain.nats, "low": None, "high": None, "pairs": None}
