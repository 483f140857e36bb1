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
from harness.report.outcome import summary

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


def test_axes_are_parameters_flops_and_seconds(planted):
    (ladder,) = of_findings(planted().findings)
    assert ladder.numbers == (576, 2176, 8448)  # 4 (2 d^2 + 2 d)
    mixture = next(head for head in ladder.heads if head.name == "MoS 2")
    assert [each.cost for each in mixture.worth["N"]] == [1, 1, 1]
    # 6 FLOPs for each weight: 8 d^2 of the LSTM, d V of softmax, 2 d^2 + 2 d + 2 d V of MoS 2, V = 12
    costs = [(8 * d * d + 2 * d * d + 2 * d + 24 * d) / (8 * d * d + 12 * d) for d in (8, 16, 32)]
    assert [each.cost for each in mixture.worth["C"]] == pytest.approx(costs, rel=1e-12)
    assert [each.cost for each in mixture.worth["T"]] == [1.5] * 3


def test_gains_are_means_over_shared_seeds(planted):
    (ladder,) = of_findings(planted().findings)
    mixture = next(head for head in ladder.heads if head.name == "MoS 2")
    pairs = [(400, 387.5), (404, 391.5), (396, 384.5), (400, 388.5)]
    expected = sum(math.log(theirs / ours) for theirs, ours in pairs) / 4
    assert mixture.gains[0].difference.mean == pytest.approx(expected, rel=1e-12)


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
        {
            "where": {"head": "mos", "backbone.d_model": d},
            "metrics": {"test_ppl": (np.array(ppl) * np.exp(-gains)).tolist()},
        }
        for d, ppl in zip((8, 16, 32), PPL["softmax"], strict=True)
    ]
    (ladder,) = of_findings(planted(*rules, **change).findings)
    mixture = next(head for head in ladder.heads if head.name == "MoS 2")
    assert mixture.number("better") == better


PPL = {  # of seeds 1 to 4 at N = 576, 2,176 and 8,448, as in records.yaml
    "softmax": ((400.0, 404.0, 396.0, 400.0), (200.0, 202.0, 198.0, 200.0), (100.0, 101.0, 99.0, 100.0)),
    "MoS 2": ((387.5, 391.5, 384.5, 388.5), (195.8, 197.8, 194.2, 196.2), (98.9, 100.0, 98.1, 99.1)),
    "MoC 2": ((391.5, 395.5, 388.5, 392.5), (195.8, 197.8, 194.2, 196.2), (97.9, 99.0, 97.1, 98.1)),
}


@pytest.mark.parametrize("name", ["MoS 2", "MoC 2"])
def test_trend_worth_and_share_by_hand(name, planted):
    (ladder,) = of_findings(planted().findings)
    head = next(each for each in ladder.heads if each.name == name)
    sizes, gains, baseline = (576, 2176, 8448), [], []
    for control, ours in zip(PPL["softmax"], PPL[name], strict=True):
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
    cost_of_time = {"MoS 2": 1.5, "MoC 2": 1.0}[name]
    for axis, taken, cost in (("N", sizes, 1.0), ("T", (2.0, 4.0, 8.0), cost_of_time)):
        for k, (loss, gain) in enumerate(zip(baseline, means, strict=True)):
            way = -1 if k == 2 else 1
            reached = np.exp(np.interp(math.log(loss - way * gain), logs, np.log(taken[::-1])))
            expected = (reached / taken[k]) ** way / cost
            assert head.worth[axis][k].best.value == pytest.approx(expected, rel=1e-9)

    for k in (0, 1):
        here, after = (math.exp(loss) for loss in baseline[k : k + 2])
        expected = (here - here * math.exp(-means[k])) / (here - after)
        assert head.shares[k].perplexity.value == pytest.approx(expected, rel=1e-9)


def test_a_head_that_is_worse_falls_behind_or_catches_up(planted):
    worse = [
        {
            "where": {"head": "mos", "backbone.d_model": d},
            "metrics": {"test_ppl": [ppl * s for s in (1, 1.01, 0.99, 1)]},
        }
        for d, ppl in ((8, 404.0), (16, 206.0), (32, 106.0))
    ]
    found = planted(*worse)
    assert said(found)[1].startswith(
        "MoS 2 is worse than softmax at 3 of 3 sizes, by 1.0, 3.0 and 6.0 %; it falls further behind with size"
    )
    assert "| worse at 3 of 3, falls further behind |" in found.table()


def test_without_a_baseline_that_falls_a_note_says_why_there_is_no_worth(planted):
    rules = {"where": {"head": "softmax", "backbone.d_model": 32}, "metrics": {"test_ppl": 210.0}}
    table = planted(rules).table()
    # the geometric mean of 200, 202, 198, 200
    assert "does not fall up to lstm 8.45k (199.99 to 210.00); tune the learning rate" in table
    assert "No worth is known" not in planted().table()


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


def test_nothing_is_decided_while_a_seed_is_missing(planted):
    missing = {"where": {"head": "mos", "backbone.d_model": 16, "seed": 2}, "record": False}
    found = planted(missing)
    assert said(found)[1] == "MoS 2: nothing is decided: seeds missing at lstm 2.18k."
    assert "undecided: seeds missing at lstm 2.18k" in found.table()


def test_the_strongest_control_over_all_sizes_is_the_baseline(planted):
    stronger = [
        {
            "where": {"head": "softmax", "head.projection": True, "backbone.d_model": d},
            "metrics": {"test_ppl": [ppl * s for s in (1, 1.01, 0.99, 1)]},
        }
        for d, ppl in ((8, 384.0), (16, 192.0), (32, 96.0))
    ]
    found = planted(*stronger, **{"{softmax: {softcap: 30}}": "{softmax: {projection: true}}"})
    (ladder,) = of_findings(found.findings)
    assert ladder.reference == "affine softmax"
    assert said(found)[0].startswith("MoS 2 is worse than affine softmax (the strongest control)")


def test_few_seeds_limit_what_is_said_of_one_size_and_not_of_all(planted):
    found = planted()
    trusted = summary(found.findings, found.rows)["Can it be trusted?"]
    expected = (
        "! Of one size alone no row is called better or worse: that needs 6 seeds, and the comparisons have 4 at most. "
        "The words on all sizes are by t tests."
    )
    assert (expected, "") in trusted
    assert "MoS 2 beats softmax at 3 of 3 sizes" in said(found)[1]


def test_a_ladder_without_a_result_at_each_size_is_a_table_of_rows(planted):
    found = planted({"where": {"backbone.d_model": 32}, "record": False})
    assert of_findings(found.findings) == []
    assert "lstm 576" in found.table()
    assert "trend" not in found.table()


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


@pytest.mark.parametrize(("width", "panels"), [(None, (1, 2)), (3.3, (2, 1))])
def test_the_plot_has_two_panels_and_each_head_its_name(planted, width, panels):
    found = planted()
    made = found._plots("ladder", (), width=width)
    (plot,) = made
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


def test_how_often_a_text_is_read_stands_below_the_table(planted):
    equal = {"seeds: [1, 2, 3, 4]": "seeds: [1, 2, 3, 4]\nmatch: {flops: softmax}"}
    table = planted(**equal).table(wide=True)
    # FLOPs of MoS 2, divided by those of softmax, see above: the largest share is that of d = 8
    fewer = 2 * (8 * 64 + 12 * 8) / (8 * 64 + 2 * 64 + 2 * 8 + 24 * 8)
    assert f"Training reads markov more than once: {fewer:.6g} to 2 epochs." in table
    assert "epochs as matched" in table


def test_two_sizes_are_enough(planted):
    found = planted(**{"{d_model: 8}, {d_model: 16}, {d_model: 32}": "{d_model: 8}, {d_model: 16}"})
    assert "2 sizes)" in said(found)[1]
    (plot,) = found._plots("ladder", ())
    assert plot.svg


def test_a_control_without_a_result_leaves_all_open(planted):
    affine = {"{softmax: {softcap: 30}}": "{softmax: {projection: true}}"}
    better = {"where": {"head": "softmax", "head.projection": True}, "metrics": {"test_ppl": 90.0}}
    lost = {
        "where": {"head": "softmax", "head.projection": True, "backbone.d_model": 32},
        "status": "diverged",
        "message": "Diverged: loss is nan",
    }
    for gone in (lost, {**lost, "record": False}):
        sentence = said(planted(better, gone, **affine))[0]
        assert sentence.startswith("MoS 2: nothing is decided: seeds ")
        assert sentence.endswith("of affine softmax at lstm 8.45k.")


def test_each_size_is_compared_with_its_own_strongest_control(planted):
    rules = [
        {
            "where": {"head": "softmax", "head.projection": True, "backbone.d_model": d},
            "metrics": {"test_ppl": [ppl * s for s in (1, 1.01, 0.99, 1)]},
        }
        for d, ppl in ((8, 440.0), (16, 200.5), (32, 97.0))
    ]
    found = planted(*rules, **{"{softmax: {softcap: 30}}": "{softmax: {projection: true}}"})
    (ladder,) = of_findings(found.findings)
    assert [row.head for row in ladder.baseline] == ["softmax", "softmax", "affine softmax"]
    assert said(found)[0].startswith("MoS 2 is better than the strongest control at 2 and worse than the strongest")


def test_a_head_that_is_no_probability_is_in_no_ladder(planted):
    compat = {"{mos: {num_mixtures: 2}}": "{mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-8}}}"}
    found = planted(**compat)
    assert not any(sentence.startswith("MoS 2") for sentence in said(found))


def test_two_backbones_have_sizes_by_number_and_a_note_each(planted):
    text = "[{lstm: {num_layers: 1}}]"
    found = planted(**{text: "[{lstm: {num_layers: 1}}, {gru: {num_layers: 1}}]"}).table(wide=True)
    assert "size 1 gain" in found
    assert "lstm 576 gain" not in found
    assert "Sizes: lstm 576 N = 576" in found
    assert "Sizes: gru 432 N = 432" in found
    assert "On markov with gru 432 to gru 6.34k:" in found


def test_few_heads_are_said_those_with_the_largest_gains(planted):
    many = ", ".join(f"{{mos: {{num_mixtures: {k}}}}}" for k in range(2, 11))
    best = {
        "where": {"head": "mos", "head.num_mixtures": 10, "backbone.d_model": 32},
        "metrics": {"test_ppl": [80.0, 80.8, 79.2, 80.0]},
    }
    found = said(planted(best, **{"{mos: {num_mixtures: 2}}": many}))
    assert any(sentence.startswith("MoS 10 ") for sentence in found)
    assert found[-1] == "5 heads with smaller gains are in the table."


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
def test_the_leaderboard_has_a_table_of_each_ladder(among_suites, leaderboard):
    results, suites = among_suites
    found = leaderboard.load(results, pytest.fail, suites)
    (table,) = found.ladder_tables(["markov"])
    assert table.title == "ladder, version 1"
    assert "MoS 2 beats softmax at 3 of 3 sizes, by " in table.lead
    assert f"## {table.title}" in found.text()
    assert found.summaries()[-1] == table
    (as_json,) = found.as_json()["ladders"]
    (mixture,) = [row for row in as_json["rows"] if row["head"] == "MoS 2"]
    gains = [mixture[key] for key in mixture if key.endswith(" gain")]
    # means over the four seeds: 400, 404, 396, 400 against 387.5, 391.5, 384.5, 388.5
    assert gains[0] == pytest.approx(100 * (1 - math.exp(sum(map(math.log, RATIOS)) / 4)), rel=1e-12)
    assert f">{leaderboard.LADDERS}<" in found.page()


RATIOS = (387.5 / 400, 391.5 / 404, 384.5 / 396, 388.5 / 400)


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
def test_a_file_of_another_name_is_not_the_suites(among_suites, leaderboard):
    results, suites = among_suites
    path = suites / "ladder.yaml"
    path.write_text(path.read_text().replace("name: ladder", "name: elsewhere"))
    assert leaderboard.load(results, pytest.fail, suites).ladders == ()


@pytest.mark.needs("board")
def test_records_that_the_file_does_not_plan_are_said(among_suites, leaderboard):
    results, suites = among_suites
    path = suites / "ladder.yaml"
    path.write_text(path.read_text().replace("seeds: [1, 2, 3, 4]", "seeds: [1, 2]"))
    warnings = []
    leaderboard.load(results, warnings.append, suites)
    assert any("records here are of other settings" in each for each in warnings)


@pytest.mark.needs("board")
def test_a_ladder_whose_file_is_not_valid_is_left_out_with_its_problem(among_suites, leaderboard):
    results, suites = among_suites
    path = suites / "ladder.yaml"
    path.write_text(path.read_text().replace("d_model: 16", "d_model: 4"))
    warnings = []
    assert leaderboard.load(results, warnings.append, suites).ladders == ()
    assert "suites/ladder.yaml is not valid, so its ladder is left out" in warnings[-1]


@pytest.mark.needs("board")
def test_the_site_has_the_ladders_before_the_rows(among_suites, leaderboard):
    results, suites = among_suites
    site = importlib.import_module("harness.board.site")
    files = site.files_of(site.studies(results, suites, pytest.fail), results, suites, pytest.fail)
    page = files["index.html"].decode()
    assert 0 < page.index(leaderboard.LADDERS) < page.index("All rows")
    assert leaderboard.LADDERS in files["leaderboard.html"].decode()
