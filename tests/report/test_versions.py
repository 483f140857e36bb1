"""Records by several versions of the code: those that a row's numbers are of; planted suites show what tables say."""

import handmade
import pytest

from harness.report.versions import of_other_code

HERE, OLD, OLDER = handmade.code(), handmade.code(head="a" * 64), handmade.code(head="b" * 64)


@pytest.mark.parametrize(
    ("codes", "days", "left_out"),
    [
        ((HERE, HERE, HERE), (1, 1, 1), set()),
        ((OLD, OLD, HERE), (1, 1, 1), {"1", "2"}),  # the code that is here, however few
        ((OLD, HERE, HERE), (1, 1, 1), {"1"}),
        ((OLD, OLD, OLDER), (1, 1, 2), {"3"}),  # the larger part
        # of as many the newest
        ((OLD, OLDER), (5, 4), {"2"}),
        ((OLDER, OLD), (4, 5), {"1"}),
    ],
)
def test_the_numbers_of_a_row_are_of_one_version_only(codes, days, left_out):
    spec, made = handmade.record().spec, []
    for number, (code, day) in enumerate(zip(codes, days, strict=True), start=1):
        where = handmade.environment(finished=f"2026-01-0{day}")
        changed = spec.model_copy(update={"id": str(number), "seed": number})
        made.append(handmade.record(spec=changed, code=code, environment=where))
    outdated = {record.id: ("head",) for record in made if record.code != HERE}
    assert of_other_code(made, outdated) == left_out
