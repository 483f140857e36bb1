"""What table, text and plot of a ladder say, of the planted suite `ladder` and of changes of its records."""

import importlib
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import planted_suites
import pytest
from ruamel.yaml import YAML
from scipy import stats

from harness import plan
from harness.ladder import table
from harness.ladder.facts import of_findings
from harness.ladder.words import number_text, sentences
from harness.plan.tuning import Once
from harness.report import study

PLANTED = Path(__file__).parents[1] / "report" / "planted" / "ladder"


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A function: further rules of records, changes of the suite's text -> the study."""

    def made(*rules: dict, **changes: str):
        monkeypatch.chdir(tmp_path)
        text = (PLANTED / "suite.yaml").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        Path("suite.yaml").write_text(text)
        known = YAML(typ="safe").load(PLANTED / planted_suites.RULES)
        with Path("records.yaml").open("w") as file:
            YAML(typ="safe").dump([*known, *rules], file)
        shutil.rmtree("results", ignore_errors=True)
        suite = plan.load(Path("suite.yaml"))
        planted_suites.plant(suite, Path("records.yaml"), Path("results"))
        return study.load(suite, Path("results"), warn=lambda sentence: None)

    return made


def said(found) -> list[str]:
    return sentences(found.findings, found.rows)


def of_softmax(head: dict, *ppls: float) -> list[dict]:
    """Rules: what a head has at each size, with the seeds 1 to 4 of softmax."""
    return [
        {"where": {**head, "backbone.d_model": d}, "metrics": {"test_ppl": [ppl * s for s in (1, 1.01, 0.99, 1)]}}
        for d, ppl in zip((8, 16, 32), ppls, strict=True)
    ]


MOS, AFFINE = {"head": "mos"}, {"head": "softmax", "head.projection": True}
WITH_AFFINE = {"{softmax: {softcap: 30}}": "{softmax: {projection: true}}"}


def test_axes_are_parameters_flops_and_seconds(planted):
    (ladder,) = of_findings(planted().findings)
    assert ladder.numbers == (576, 2176, 8448)  # 4 (2 d^2 + 2 d)
    mixture = next(head for head in ladder.heads if head.name == "MoS 2")
    assert [each.cost for each in mixture.worth["N"]] == [1, 1, 1]
    # 6 FLOPs for each weight: 8 d^2 of the LSTM, d V of softmax, 2 d^2 + 2 d + 2 d V of MoS 2, V = 12
    costs = [(8 * d * d + 2 * d * d + 2 * d + 24 * d) / (8 * d * d + 12 * d) for d in (8, 16, 32)]
    assert [each.cost for each in mixture.worth["C"]] == pytest.approx(costs, rel=1e-12)
    assert [each.cost for each in mixture.worth["T"]] == [1.5] * 3


@pytest.mark.parametrize(
    ("change", "better"),
    [({}, 0), ({", {softmax: {softcap: 30}}": "", ", {moc: {num_mixtures: 2}}": ""}, 3)],
    ids=["one of three", "alone"],
)
def test_words_allow_for_the_number_of_heads(planted, change, better):
    # p = 0.008 at each of three sizes, and 1 of the slope: 4 p is below 0.05 of one head, and 12 p above it of three
    t = stats.t.isf(0.004, 3)
    gains = 0.03 * (1 + np.array([1, -1, 1, -1]) * math.sqrt(3 / 4) * 2 / t)  # of four seeds: mean 0.03, sd 0.06 / t
    rules = [
        {"where": {**MOS, "backbone.d_model": d}, "metrics": {"test_ppl": (np.array(ppl) * np.exp(-gains)).tolist()}}
        for d, ppl in zip((8, 16, 32), PPL["softmax"], strict=True)
    ]
    (ladder,) = of_findings(planted(*rules, **change).findings)
    mixture = next(head for head in ladder.heads if head.name == "MoS 2")
    assert mixture.number("better") == better


PPL = {  # of seeds 1 to 4 at N = 576, 2,176 and 8,448, as in records.yaml
    "softmax": ((400.0, 404.0, 396.0, 400.0), (200.0, 202.0, 198.0, 200.0), (100.0, 101.0, 99.0, 100.0)),
    "MoS 2": ((387.5, 391.5, 384.5, 388.5), (195.8, 197.8, 194.2, 196.2), (98.9, 100.0, 98.1, 99.1)),
}


def test_trend_worth_and_share_by_hand(planted):
    (ladder,) = of_findings(planted().findings)
    head = next(each for each in ladder.heads if each.name == "MoS 2")
    sizes, gains, baseline = (576, 2176, 8448), [], []
    for control, ours in zip(PPL["softmax"], PPL["MoS 2"], strict=True):
        gains.append([math.log(one / other) for one, other in zip(control, ours, strict=True)])
        baseline.append(sum(map(math.log, control)) / 4)
    means = [sum(each) / 4 for each in gains]

    # the line of least squares through the gains of all seeds; equal numbers of seeds, so x - mean are the weights
    x = np.repeat(np.log2(sizes), 4)
    slope = np.polyfit(x, np.ravel(gains), 1)[0]
    apart = np.log2(sizes) - np.log2(sizes).mean()
    variances = [(w / (apart**2).sum()) ** 2 * np.var(each, ddof=1) / 4 for w, each in zip(apart, gains, strict=True)]
    df = sum(variances) ** 2 / sum(variance**2 / 3 for variance in variances)
    reach = stats.t.ppf(0.975, df) * math.sqrt(sum(variances))
    found = (head.trend.slope, head.trend.low, head.trend.high)
    assert found == pytest.approx((slope, slope - reach, slope + reach), rel=1e-9)

    # lines in (log x, log loss): down by the gain, but at the largest size up by it, and the reciprocal
    logs = np.log(baseline[::-1])
    for axis, taken, cost in (("N", sizes, 1.0), ("T", (2.0, 4.0, 8.0), 1.5)):
        for k, (loss, gain) in enumerate(zip(baseline, means, strict=True)):
            way = -1 if k == 2 else 1
            reached = np.exp(np.interp(math.log(loss - way * gain), logs, np.log(taken[::-1])))
            expected = (reached / taken[k]) ** way / cost
            assert head.worth[axis][k].best.value == pytest.approx(expected, rel=1e-9)

    for k in (0, 1):
        here, after = (math.exp(loss) for loss in baseline[k : k + 2])
        expected = (here - here * math.exp(-means[k])) / (here - after)
        assert head.shares[k].perplexity.value == pytest.approx(expected, rel=1e-9)


LOST = {"where": {**AFFINE, "backbone.d_model": 32}, "status": "diverged", "message": "Diverged: loss is nan"}
BETTER = {"where": AFFINE, "metrics": {"test_ppl": 90.0}}
MANY = ", ".join(f"{{mos: {{num_mixtures: {k}}}}}" for k in range(2, 11))
BEST = {
    "where": {"head": "mos", "head.num_mixtures": 10, "backbone.d_model": 32},
    "metrics": {"test_ppl": [80.0, 80.8, 79.2, 80.0]},
}


@pytest.mark.parametrize(
    ("rules", "changes", "expected"),
    [
        pytest.param(
            of_softmax(MOS, 404.0, 206.0, 106.0),
            {},
            "MoS 2 is worse than softmax at 3 of 3 sizes, by 1.0, 3.0 and 6.0 %; it falls further behind with size",
            id="worse",
        ),
        pytest.param(
            [{"where": {**MOS, "backbone.d_model": 16, "seed": 2}, "record": False}],
            {},
            "MoS 2: nothing is decided: seeds missing at lstm 2.18k.",
            id="a seed is missing",
        ),
        pytest.param(
            of_softmax(AFFINE, 384.0, 192.0, 96.0),
            WITH_AFFINE,
            "MoS 2 is worse than affine softmax (the strongest control)",
            id="one control is the strongest over all sizes",
        ),
        pytest.param(
            of_softmax(AFFINE, 440.0, 200.5, 97.0),
            WITH_AFFINE,
            "MoS 2 is better than the strongest control at 2 and worse than the strongest control at 1 of 3 sizes",
            id="each size has its own strongest control",
        ),
        pytest.param(
            [BETTER, LOST],
            WITH_AFFINE,
            "MoS 2: nothing is decided: seeds failed of affine softmax at lstm 8.45k.",
            id="a control has failed",
        ),
        pytest.param(
            [BETTER, {**LOST, "record": False}],
            WITH_AFFINE,
            "MoS 2: nothing is decided: seeds missing of affine softmax at lstm 8.45k.",
            id="a control is missing",
        ),
        pytest.param(
            [],
            {"{d_model: 8}, {d_model: 16}, {d_model: 32}": "{d_model: 8}, {d_model: 16}"},
            "MoS 2 beats softmax at 2 of 2 sizes",
            id="two sizes are enough",
        ),
        pytest.param([BEST], {"{mos: {num_mixtures: 2}}": MANY}, "MoS 10 beats", id="of many the largest gains"),
        pytest.param(
            [BEST],
            {"{mos: {num_mixtures: 2}}": MANY},
            "5 heads with smaller gains are in the table.",
            id="of many how many are left out",
        ),
    ],
)
def test_a_changed_ladder_is_said_so(planted, rules, changes, expected):
    found = said(planted(*rules, **changes))
    assert [sentence for sentence in found if sentence.startswith(expected)], found


def test_a_head_that_is_no_probability_is_in_no_ladder(planted):
    compat = {"{mos: {num_mixtures: 2}}": "{mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-8}}}"}
    assert not [sentence for sentence in said(planted(**compat)) if sentence.startswith("MoS 2")]


@pytest.mark.parametrize(
    ("rules", "changes", "shown", "not_shown"),
    [
        pytest.param(
            of_softmax(MOS, 404.0, 206.0, 106.0),
            {},
            ["| worse at 3 of 3, falls further behind |"],
            "No worth is known",
            id="a head is worse",
        ),
        pytest.param(
            [{"where": {**MOS, "backbone.d_model": 16, "seed": 2}, "record": False}],
            {},
            ["undecided: seeds missing at lstm 2.18k"],
            "No worth is known",
            id="a seed is missing",
        ),
        # the geometric mean of 200, 202, 198, 200
        pytest.param(
            [{"where": {"head": "softmax", "backbone.d_model": 32}, "metrics": {"test_ppl": 210.0}}],
            {},
            ["does not fall up to lstm 8.45k (199.99 to 210.00); tune the learning rate"],
            " times",
            id="a baseline that does not fall",
        ),
        pytest.param(
            [{"where": {"backbone.d_model": 32}, "record": False}],
            {},
            ["| lstm 576 "],
            "trend",
            id="a size without a result",
        ),
        # FLOPs of MoS 2, divided by those of softmax, see above: the largest share is that of d = 8
        pytest.param(
            [],
            {"seeds: [1, 2, 3, 4]": "seeds: [1, 2, 3, 4]\nmatch: {flops: softmax}"},
            [
                f"Training reads markov more than once: {2 * (8 * 64 + 12 * 8) / (10 * 64 + 26 * 8):.6g} to 2 epochs.",
                "epochs as matched",
            ],
            "size 1 gain",
            id="equal FLOPs",
        ),
        pytest.param(
            [],
            {"[{lstm: {num_layers: 1}}]": "[{lstm: {num_layers: 1}}, {gru: {num_layers: 1}}]"},
            [
                "size 1 gain",
                "Sizes: lstm 576 N = 576",
                "Sizes: gru 432 N = 432",
                "On markov with gru 432 to gru 6.34k:",
            ],
            "lstm 576 gain",
            id="two backbones",
        ),
    ],
)
def test_the_table_of_a_changed_ladder(planted, rules, changes, shown, not_shown):
    table = planted(*rules, **changes).table(wide=True)
    assert [text for text in shown if text not in table] == []
    assert not_shown not in table


def test_rates_that_follow_are_named_where_they_lie_outside_of_those_that_were_tried():
    def row(rate: float, *, follows: bool = True) -> SimpleNamespace:
        planned, train = SimpleNamespace(follows=follows or None), SimpleNamespace(lr=rate)
        return SimpleNamespace(planned=planned, spec=SimpleNamespace(train=train), backbone="large")

    rows = {
        "low": row(0.002),
        "least": row(0.003),
        "most": row(0.012),
        "high": row(0.013),
        "tuned": row(1.0, follows=False),
    }
    heads = [SimpleNamespace(name=name, rows=(None, each)) for name, each in rows.items()]
    tune = Once(seed=7, space={"train.lr": [0.003, 0.006, 0.012]})
    findings = SimpleNamespace(evidence=SimpleNamespace(suite=SimpleNamespace(tune=tune)))
    said = "Learning rates outside of those that were tried: low at large: 0.002; high at large: 0.013."
    assert table._untried(findings, [SimpleNamespace(heads=heads)]) == [said]


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        (2.94, False, "2.9"),
        (-0.7, True, "-0.70"),
        (-0.001, False, "0.00"),
        (0.951, True, "+1.0"),
        (-1.25, False, "-1.2"),
    ],
)
def test_small_numbers_have_two_digits(value, sign, text):
    assert number_text(value, sign=sign) == text


def test_the_plot_has_two_panels_and_each_head_its_name(planted):
    for found, width in ((planted(), None), (planted(), 3.3)):
        (plot,) = found._plots("ladder", (), width=width)
        assert [plot.svg.count(f">{name}<") for name in ("softmax", "MoS 2", "MoC 2", "softmax, softcap 30")] == [1] * 4
        assert plot.svg.count('id="axes_') == 2
        assert 'id="row-2-0"' in plot.svg
        assert "band over seeds" in plot.caption


def test_of_many_heads_the_ten_with_the_largest_gains_or_losses_are_drawn(planted):
    text = ", ".join(f"{{mos: {{num_mixtures: {k}}}}}" for k in range(2, 15))
    last = [  # of heads with gains of 3 % or less, one is 20 % better at a size, and one 20 % worse
        {
            "where": {"head": "mos", "head.num_mixtures": k, "backbone.d_model": 8},
            "metrics": {"test_ppl": [factor * ppl for ppl in PPL["softmax"][0]]},
        }
        for k, factor in ((13, 0.8), (14, 1.2))
    ]
    (plot,) = planted(*last, **{"{mos: {num_mixtures: 2}}": text})._plots("ladder", ())
    assert "Shown: 9 of 15 heads." in plot.caption
    names = ("MoS 13", "MoS 14", "softmax, softcap 30")  # the last one has the smallest gains
    assert [plot.svg.count(f">{name}<") for name in names] == [1, 1, 0]


@pytest.fixture
def leaderboard():
    """The module, which may be deleted."""
    return importlib.import_module("harness.board.leaderboard")


@pytest.fixture
def among_suites(planted):
    """Results and suites of a folder with the ladder, where commands look for both: their paths."""
    found = planted()
    Path("suites").mkdir()
    shutil.copy("suite.yaml", Path("suites", f"{found.suite.name}.yaml"))
    return Path("results"), Path("suites")


@pytest.mark.needs("board")
def test_a_ladder_without_a_result_at_each_size_is_in_no_group_of_ladders(among_suites, leaderboard):
    results, suites = among_suites
    found = study.load(plan.load(suites / "ladder.yaml"), results, warn=pytest.fail)
    for record in found.records.values():
        if record.spec.backbone.params["d_model"] == 32:
            shutil.rmtree(next(results.glob(f"runs/*/{record.id}")))
    board = leaderboard.load(results, pytest.fail, suites)
    assert board.ladder_tables() == ()
    assert len(board.groups) == 1


@pytest.mark.needs("board")
def test_a_worth_beyond_the_sizes_is_no_number(planted, among_suites, leaderboard):
    best = {"where": {"head": "mos"}, "metrics": {"test_ppl": [50.0, 51.0, 49.0, 50.0]}}  # below the largest softmax
    planted(best)
    results, suites = among_suites
    board = leaderboard.load(results, pytest.fail, suites)
    (as_json,) = json.loads(json.dumps(board.as_json(), allow_nan=False))["ladders"]
    (mixture,) = [row for row in as_json["rows"] if row["head"] == "MoS 2"]
    assert mixture["lstm 576 worth, parameters"].startswith("more than ")


@pytest.mark.needs("board")
@pytest.mark.parametrize(
    ("old", "new", "ladders", "warning"),
    [
        ("name: ladder", "name: elsewhere", 0, ""),
        ("seeds: [1, 2, 3, 4]", "seeds: [1, 2]", 1, "records here are of other settings"),
        ("d_model: 16", "d_model: 4", 0, "suites/ladder.yaml is not valid, so its ladder is left out"),
    ],
)
def test_a_file_that_does_not_fit_the_records_is_told_of(among_suites, leaderboard, old, new, ladders, warning):
    results, suites = among_suites
    path, told = suites / "ladder.yaml", []
    path.write_text(path.read_text().replace(old, new))
    assert len(leaderboard.load(results, told.append, suites).ladders) == ladders
    assert warning in " ".join(told)
    assert bool(told) == bool(warning)


@pytest.mark.needs("board")
def test_the_site_has_the_ladders_before_the_rows(among_suites, leaderboard):
    results, suites = among_suites
    site = importlib.import_module("harness.board.site")
    files = site.files_of(site.studies(results, suites, pytest.fail), results, suites, pytest.fail)
    page = files["index.html"].decode()
    assert 0 < page.index(leaderboard.LADDERS) < page.index("All rows")
    assert leaderboard.LADDERS in files["leaderboard.html"].decode()
