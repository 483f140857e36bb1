"""Records by several versions of the code: which a row's numbers are of, and what a table says of it."""

import handmade
import pytest
from handmade import tabulated

from harness.report.versions import of_other_code

SUITE = handmade.suite_text(
    version="3",
    heads="[softmax, {mos: {num_mixtures: 2}}]",
    seeds="[1, 2, 3]",
    table="{shape: SHAPE, baseline: softmax}",
)
HERE, OLD, OLDER = handmade.code(), handmade.code(head="a" * 64), handmade.code(head="b" * 64)


@pytest.fixture
def shown(suite_of, record_of):
    """A function: the code of mos' three records -> the table as markdown, as if the code here were HERE. Test
    perplexities are 10, 20, 40 for seeds 1, 2, 3.
    """

    def show(*codes, shape="mixtures", **more) -> str:
        suite = suite_of(SUITE.replace("SHAPE", shape))
        made = planted(suite, record_of, codes)
        return tabulated(suite, made, **known(made), **more)

    return show


def planted(suite, record_of, codes) -> list:
    made = [record_of(trial, test_ppl=5.0, valid_ppl=5.0) for trial in suite.trials[:3]]
    for trial, code, ppl in zip(suite.trials[3:], codes, (10.0, 20.0, 40.0), strict=True):
        made.append(record_of(trial, code=code, test_ppl=ppl, valid_ppl=ppl))
    return made


def known(made) -> dict:
    outdated = {r.id: ("head",) for r in made if r.code is not None and r.code.head != HERE.head}
    return {"outdated": outdated}


def row(markdown: str, head: str = "MoS") -> list[str]:
    (line,) = [line for line in markdown.splitlines() if line.startswith(f"| {head}")]
    return [cell.strip() for cell in line.split("|")[1:-1]]


def notes(markdown: str, about: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("- ") and about in line]


@pytest.mark.parametrize(
    ("codes", "mean", "state", "told"),
    [
        ((HERE, HERE, HERE), "23.33 ± 15.28", "3/3", ""),  # 70 / 3
        ((OLD, OLD, HERE), "40.00", "1/3: 2 of other code", "seed 3"),  # the code that is here, however few
        ((OLD, HERE, HERE), "30.00 ± 14.14", "2/3: 1 of other code", "seeds 2, 3"),  # (20 + 40) / 2
        ((OLD, OLD, OLDER), "15.00 ± 7.07", "2/3: 1 of other code", "seeds 1, 2"),  # the larger part
    ],
)
def test_the_mean_is_over_one_version_only(shown, codes, mean, state, told):
    table = shown(*codes)
    assert row(table)[5].strip("*≈ ") == mean
    assert row(table)[0].endswith("¶") == bool(told)
    assert row(table)[-1] == state
    expected = [f"- ¶ MoS 2: trained by 2 versions of heads/mos.py. The numbers are of {told} only."] if told else []
    assert notes(table, "¶ MoS") == expected


def test_of_two_versions_with_as_many_records_the_newest_counts(suite_of, record_of):
    suite = suite_of(SUITE.replace("SHAPE", "mixtures"))
    old, older = (
        record_of(trial, code=code, environment={"finished": f"2026-01-0{day}"})
        for trial, code, day in zip(suite.trials, (OLD, OLDER), (5, 4), strict=False)
    )
    outdated = {old.id: ("head",), older.id: ("head",)}
    assert of_other_code([old, older], outdated) == {older.id}
    assert of_other_code([older, old], outdated) == {older.id}
