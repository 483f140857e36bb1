"""The leaderboard: what compares stands together, what does not never does; each trial once."""

import io
import json
import math
import re
from pathlib import Path

import handmade
import pytest
import texts
from bundles import timing_of
from rich.console import Console

from harness import plan
from harness.board import leaderboard
from harness.board.groups import gather, groups, is_pretrained
from harness.code import hashes
from harness.plan.specs import ComponentSpec, Contents
from harness.records import sidecars, store
from harness.records.record import CurvePoint
from harness.report.screen import short

METRICS = {
    "params_total": 780.0,
    "params_head": 108.0,
    "train_ms_per_batch": 5.0,
    "peak_memory_mib": 400.0,
    "state_carried": 1,
}


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def finish(tmp_path, results):
    """A function: changes of a suite's text, test perplexities of its trials in order -> their records, saved. None:
    the trial diverged; 0: it has no record.
    """

    def save(*replacements, ppls, suite="small", contents=True, more=(), **changes):
        path = tmp_path / "suite.yaml"
        path.write_text(handmade.changed(*replacements))
        read = plan.load(path)
        made = []
        for spec, ppl in zip(read.trials, ppls, strict=True):
            if ppl == 0:
                continue
            told = read.contents_of(spec) if contents else None
            values = {
                "suite": suite,
                "spec": spec,
                "metrics": {**METRICS, "valid_ppl": ppl + 1, "test_ppl": ppl, **dict(more)} if ppl else {},
                "contents": told,
            }
            if spec.seed > 1:
                values |= {"weights_sha256": f"{spec.seed:02x}" * 32}
            if ppl is None:
                values |= {"status": "diverged", "metrics": {}}
            made.append(handmade.record(**{**values, **changes}))
            store.save(made[-1], store.runs_folder(results, suite))
        return made

    return save


@pytest.fixture
def found(results):
    """A function: the groups of what was saved."""
    return lambda: groups(gather(results, pytest.fail)[0])


def text_of(made) -> str:
    """The tables of some groups in markdown."""
    return leaderboard.Leaderboard(results=Path(), groups=tuple(made), unknown=0, differing=()).text()


def lines(group) -> list[dict[str, str]]:
    """The texts of a group's table."""
    table = leaderboard.table(group)
    names = [column.name for column in table.columns]
    return [dict(zip(names, [cell.text for cell in line.cells], strict=True)) for line in table.lines]


def test_a_row_has_mean_and_spread_over_seeds_and_rows_go_by_perplexity(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])  # softmax seeds 1, 2; mos seeds 1, 2
    (group,) = found()
    best, other = lines(group)
    # sd of 9 and 9.5: 0.25 * sqrt(2) = 0.354; of 10 and 12: sqrt(2) = 1.414
    assert (best["head"], best["test ppl"], best["seeds"]) == ("MoS 2", "9.25 ± 0.35", "2")
    assert (other["head"], other["test ppl"], other["seeds"]) == ("softmax", "11.00 ± 1.41", "2")
    assert (best["params"], best["head params"], best["peak MiB"], best["context"]) == (
        "780",
        "108",
        "400 ± 0",
        "7 and state",
    )
    assert (best["device"], best["suites"], best["finished"]) == ("a processor", "small", "2026-01-02")
    assert "training" not in best
    (table,) = map(leaderboard.table, (group,))
    assert table.lines[0].cells[4].value == 9.25
    assert table.lines[0].cells[4].spread == pytest.approx(0.25 * math.sqrt(2))


def test_a_terminal_shows_rank_backbone_seeds_and_the_difference_to_the_best(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    (group,) = found()
    summary = leaderboard.of_group(leaderboard.table(group))
    scores = ["test ppl", "vs best"]
    assert [column.name for column in summary.columns] == ["rank", "head", *scores, "ms/batch", "seeds"]
    assert summary.title.endswith(", lstm")  # the backbone of all rows
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(short(summary, 80))
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert " 9.25 " in shown
    assert "+18.5" in shown  # log(10 / 9) = 0.10536, log(12 / 9.5) = 0.23361; exp(0.16949) = 1.1847


def test_a_row_has_its_difference_to_the_first_over_shared_seeds_with_its_interval(finish, found):
    finish(ppls=[10.0, 11.4, 9.0, 9.5])
    best, other = lines(found()[0])
    assert (best["rank"], best["vs best"], best["pairs"]) == ("-", "-", "-")  # two seeds give no rank
    # log(10 / 9) = 0.10536 and log(11.4 / 9.5) = 0.18232, so mean 0.14384; the standard error of two values is half of
    # their distance; t(0.975) of one degree of freedom is 12.7062
    reach = 12.7062 * (math.log(11.4 / 9.5) - math.log(10 / 9)) / 2
    low, high = (100 * math.expm1(0.14384 + part) for part in (-reach, reach))
    assert other["rank"] == "-"
    assert other["vs best"] == f"+15.5 % [{low:+.1f}, {high:+.1f}]"
    assert other["pairs"] == "2"
    best, row = leaderboard.groups_json(found())[0]["rows"]
    assert best["head"] == {"name": "mos", "params": {"num_mixtures": 2}, "label": "MoS 2"}
    assert row["rank"] is None
    assert row["vs_best"]["nats"] == pytest.approx(0.14384, abs=1e-5)
    assert set(row["vs_best"]) == {"nats", "low", "high", "pairs"}


def test_rows_that_cannot_be_judged_have_no_rank_and_follow_the_others(finish, found):
    points = [CurvePoint(epoch=n, train_loss=1.0, valid_ppl=9.0, lr=1.0, seconds=1.0) for n in (1, 2)]
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    noise = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02]
    heads = ("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 3, 4]}")
    of_heads = [[20 + each for each in noise], [10 - each for each in noise]]
    lost = [5 + each for each in noise[:5]]
    few = [3 + each for each in noise[:5]]
    finish(seeds, heads, ppls=[*of_heads[0], *of_heads[1], *lost, None, *few, 0], curve=tuple(points))
    assert [(line["head"], line["rank"]) for line in lines(found()[0])] == [
        ("MoS 2", "1"),
        ("softmax", "2"),
        ("MoS 4", "-"),  # five seeds
        ("MoS 3", "-"),  # one of six diverged
    ]


NOISE = (0.0, 0.1, -0.1, 0.05, -0.05, 0.02)


@pytest.fixture
def ranks(finish, found):
    """A function: test perplexities of softmax, MoS 2, MoS 3 and MoS 4 over six seeds -> head -> rank, in order."""
    points = [CurvePoint(epoch=n, train_loss=1.0, valid_ppl=9.0, lr=1.0, seconds=1.0) for n in (1, 2)]
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    heads = ("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: [2, 3, 4]}")

    def ranked(*ppls):
        finish(seeds, heads, ppls=[ppl for row in ppls for ppl in row], curve=tuple(points))
        return {line["head"]: line["rank"] for line in lines(found()[0])}

    return ranked


def test_rows_that_cannot_be_distinguished_from_the_lowest_share_its_rank(ranks, found):
    # the differences of the second row to the first, and of the fourth to the third, have both signs
    first, third = ([mean + each for each in NOISE] for mean in (10, 12))
    second, fourth = ([mean - each for each in NOISE] for mean in (10.01, 12.01))
    alike = {"softmax": "1-2", "MoS 2": "1-2", "MoS 3": "3-4", "MoS 4": "3-4"}
    assert list(ranks(first, second, third, fourth).items()) == list(alike.items())
    groups = found()
    rows = leaderboard.groups_json(groups)[0]["rows"]
    assert [(row["rank"], row["last_rank"]) for row in rows] == [(1, 2), (1, 2), (3, 4), (3, 4)]
    contents = leaderboard.contents(groups, groups)
    assert [cell.text for cell in contents.lines[0].cells][-1] == "softmax; MoS 2 (2 share rank 1)"
    assert contents.lines[0].cells[1].link == "#table-1"


def test_rows_within_the_margin_of_the_lowest_share_its_rank_however_sure_their_difference_is(ranks, found):
    first, second, third, fourth = ([mean + each for each in NOISE] for mean in (10, 10.05, 10.09, 10.4))
    # in %: 100 * (10.05 / 10 - 1) = 0.5, 0.9, and 4; intervals of some 0.01
    assert ranks(first, second, third, fourth) == {"softmax": "1-3", "MoS 2": "1-3", "MoS 3": "1-3", "MoS 4": "4"}
    contents = leaderboard.contents(found(), ())
    assert [cell.text for cell in contents.lines[0].cells][-1] == "softmax; MoS 2; MoS 3 (3 share rank 1)"


def test_no_row_ranks_behind_one_with_a_higher_perplexity(ranks, found):
    # the last row is as 11 on average, and its difference to the first, from -0.6 to 4.4, may be 0
    last = [10 + each for each in (-0.6, -0.5, -0.3, 0.0, 3.0, 4.4)]
    first, second, third = ([mean + each for each in NOISE] for mean in (10, 10.3, 10.6))
    assert ranks(first, second, third, last) == dict.fromkeys(("softmax", "MoS 2", "MoS 3", "MoS 4"), "1-4")
    contents = leaderboard.contents(found(), ())
    assert [cell.text for cell in contents.lines[0].cells][-1] == "softmax; MoS 2; MoS 3; ... (4 share rank 1)"


def test_tables_that_rank_nothing_are_hidden_where_others_rank(ranks, found, finish, results, harness):
    ranks(*([mean + each for each in NOISE] for mean in (10, 12, 14, 16)))
    finish(("epochs: 2", "epochs: 1"), ppls=[10.0, 12.0, 9.0, 9.5], suite="few", more={"best_epoch": 1.0})
    shown, everything = (harness("leaderboard", "--results", results, *more).out for more in ((), ("--all",)))
    assert (shown.count("These rows compare"), everything.count("These rows compare")) == (1, 2)
    assert "Not shown: 1 table in which no row can be ranked; harness leaderboard --all shows them." in shown
    assert all("1 epoch, context 7" in text for text in (shown, everything))  # the contents name both


def test_no_row_has_a_star_or_a_p_value_and_a_sentence_says_why(finish, found):
    # six seeds, no spread worth mentioning and twice the perplexity: what decides is not in the records
    points = [CurvePoint(epoch=n, train_loss=1.0, valid_ppl=9.0, lr=1.0, seconds=1.0) for n in (1, 2)]
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    noise = [0.0, 0.1, -0.1, 0.05, -0.05, 0.02]
    finish(seeds, ppls=[20 + each for each in noise] + [10.0 - each for each in noise], curve=tuple(points))
    (_, other) = lines(found()[0])
    assert (other["rank"], other["pairs"]) == ("2", "6")
    assert other["vs best"].startswith("+100.")  # 20 / 10
    assert "*" not in other["vs best"]
    assert not [name for name in other if name.startswith("p (")]
    text = text_of(found())
    assert "\n- vs best: " in text
    assert "It has no p and no star: records know neither the test that a suite declares nor what its tuning" in text


def test_a_table_says_what_it_compares_with_what(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    (group,) = found()
    sentence = (
        "These rows compare with each other and with no other table: one text (markov), one counting rule, one way of "
        "evaluating, trained for 2 epochs."
    )
    assert leaderboard.table(group).lead == sentence
    assert f"\n\n{sentence}\n\n|" in text_of((group,))


def test_rows_are_in_the_order_of_test_as_in_tables(finish, found):
    finish(ppls=[10.0, 12.0, 0, 0], more={"valid_ppl": 9.0})
    finish(ppls=[0, 0, 8.0, 8.0], more={"valid_ppl": 9.5})
    (group,) = found()
    assert [(line["head"], line["valid ppl"]) for line in lines(group)] == [
        ("MoS 2", "9.50 ± 0.00"),
        ("softmax", "9.00 ± 0.00"),
    ]


@pytest.mark.parametrize(("valid", "noted"), [((9.0, 8.9), True), ((9.0, 8.99), False), ((9.0, 9.3), False)])
def test_a_row_whose_validation_and_test_disagree_beyond_the_spread_of_seeds_has_a_note(finish, found, valid, noted):
    # MoS 2 is 10 against 10.5 on test; the pairs of validation differ from their mean by 0.02 to 0.2
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    of_mos, of_softmax = valid
    for seed, noise in enumerate(NOISE, start=1):
        for place, ppl, level in ((0, 10.5 + noise, of_softmax + noise / 5), (1, 10.0 + noise, of_mos - noise / 5)):
            ppls = [0] * 12
            ppls[6 * place + seed - 1] = ppl
            finish(seeds, ppls=ppls, more={"valid_ppl": level})
    notes = [note for note in leaderboard.table(found()[0]).notes if "disagree" in note]
    assert len(notes) == noted
    if noted:
        # log(8.9 / 9) = -0.0112 on average, and log(10.5 / 10) = 0.0488
        assert notes[0].startswith("The two splits disagree beyond the spread of seeds. ")
        assert " softmax on lstm against MoS 2: +5.0 % [" in notes[0]
        assert ", but -1.1 % [" in notes[0]
        assert notes[0].endswith("of validation perplexity.")


def test_a_collapsed_row_is_last_and_rows_are_marked_as_in_tables(finish, found):
    points = [CurvePoint(epoch=n, train_loss=1.0, valid_ppl=ppl, lr=1.0, seconds=1.0) for n, ppl in ((1, 9), (2, 8))]
    done = [point.model_copy(update={"valid_ppl": 9.0}) for point in points]
    finish(ppls=[19.1, 19.1, 0, 0], more={"valid_ppl": 2.0, "unigram_test_ppl": 20.0}, curve=tuple(done))
    finish(ppls=[0, 0, 18.0, 18.0], more={"valid_ppl": 9.5, "unigram_test_ppl": 20.0}, curve=tuple(points))
    (group,) = found()
    assert [(line["head"], line["test ppl"]) for line in lines(group)] == [
        ("MoS 2", "18.00 ± 0.00 ↓"),
        ("softmax", "19.10 ± 0.00 ↓"),
    ]
    notes = leaderboard.table(group).notes
    assert any(note.endswith("Trials: MoS 2 2 of 2.") for note in notes)
    assert any(note.startswith("↓ collapsed") and note.endswith(": softmax.") for note in notes)
    rows = leaderboard.groups_json((group,))[0]["rows"]
    assert [(row["collapsed"], row["not_converged"]) for row in rows] == [(False, [1, 2]), (True, [])]


def test_a_row_with_an_invalid_trial_is_left_out_and_named(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    invalid = {"status": "invalid", "certificate": handmade.certificate(sum_error=277.0)}
    finish(
        ("  - softmax\n", ""),
        ("seeds: [1, 2]", "seeds: [3]"),
        ("baseline: softmax", "baseline: mos"),
        ppls=[0.5],
        **invalid,
    )
    (group,) = found()
    assert [line["head"] for line in lines(group)] == ["softmax"]
    (left_out,) = [note for note in leaderboard.table(group).notes if note.startswith("Left out")]
    assert left_out.startswith("Left out: 1 row with invalid trials")
    assert left_out.endswith("MoS 2 on lstm.")
    ((entry,),) = [each["invalid"] for each in leaderboard.groups_json((group,))]
    assert entry["statuses"] == {"ok": 2, "invalid": 1}
    assert (entry["test_ppl"], entry["certified"]) == (None, False)


def test_failed_trials_are_counts_and_rows_without_a_number_come_last(finish, found):
    finish(ppls=[None, None, 50.0, None])
    (group,) = found()
    assert [(line["head"], line["test ppl"], line["seeds"]) for line in lines(group)] == [
        ("MoS 2", "50.00", "1; 1 diverged"),
        ("softmax", "-", "0; 2 diverged"),
    ]


@pytest.mark.parametrize(
    "replacement",
    [
        ("epochs: 2", "epochs: 3"),
        ("seq_len: 7", "seq_len: 8"),
        ("seq_len: 7", "seq_len: 7, eval_batches: 2"),
        ("seq_len: 7", "seq_len: 7, eval_batch_size: 5"),
        ("seq_len: 7", "seq_len: 7, batching: blocks"),
        ("branching: 3", "branching: 4"),
        ("branching: 3", "branching: 3, seed: 1"),
    ],
)
def test_what_does_not_compare_is_in_tables_of_their_own(finish, found, replacement):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    finish(replacement, ppls=[1.0, 2.0, 3.0, 4.0], suite="other")
    assert [len(group.entries) for group in found()] == [2, 2]
    assert len({leaderboard.table(group).title for group in found()}) == 2
    assert {entry.suites for group in found() for entry in group.entries} == {("small",), ("other",)}


def test_titles_that_would_be_the_same_name_the_setting_that_differs_and_others_do_not(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    finish(("seq_len: 7", "seq_len: 7, eval_batch_size: 5"), ppls=[1.0, 2.0, 3.0, 4.0], suite="other")
    finish(("epochs: 2", "epochs: 3"), ppls=[1.0, 2.0, 3.0, 4.0], suite="longer")
    assert {entry.suites: leaderboard.table(group).title for group in found() for entry in group.entries} == {
        ("small",): "markov, 2 epochs, context 7, eval_batch_size=10",
        ("other",): "markov, 2 epochs, context 7, eval_batch_size=5",
        ("longer",): "markov, 3 epochs, context 7",
    }


def test_a_head_computed_as_a_published_code_does_compares_with_its_like_only(finish, found):
    compat = ("mos: {num_mixtures: 2}", "mos: {num_mixtures: 2, compat: {log_epsilon: 1.0e-8}}")
    finish(compat, ppls=[10.0, 12.0, 9.0, 9.5])
    first, second = found()
    assert [len(group.entries) for group in (first, second)] == [1, 1]
    assert (
        "computed with {log_epsilon: 1e-08}"
        in leaderboard.table(max(first, second, key=lambda g: g.compat or "")).title
    )


def test_a_model_that_is_trained_in_both_directions_compares_with_its_like_only(finish, found):
    finish(ppls=[80, 82, 60, 62])
    finish(("lstm:", "bilstm:"), ppls=[70, 72, 50, 52])
    one, both = sorted(found(), key=lambda group: group.bidirectional)
    assert [(group.bidirectional, len(group.entries)) for group in (one, both)] == [(False, 2), (True, 2)]
    assert leaderboard._title(both) == f"{leaderboard._title(one)}, trained in both directions"
    assert [group["bidirectional"] for group in leaderboard.groups_json((one, both))] == [False, True]


def test_a_text_of_another_hash_is_another_text(tmp_path, finish, found):
    replacement = ("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "text: {path: mine}")
    folder = tmp_path / "mine"
    folder.mkdir()
    for seed in (10, 20):
        for number, split in enumerate(("train", "valid", "test")):
            (folder / f"{split}.txt").write_text(texts.lines(20, seed + number))
        finish(replacement, ppls=[10.0, 12.0, 9.0, 9.5])
    first, second = found()
    assert first.content != second.content
    assert first.corpus.params == second.corpus.params == {"path": "mine"}  # a name, not its place on this machine
    assert [len(group.entries) for group in (first, second)] == [2, 2]
    for group in (first, second):
        assert leaderboard.table(group).title.endswith(f", text={group.content[:12]}")


def test_records_that_cannot_be_confirmed_are_left_out_and_counted_or_named(results, finish, harness):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    first, *_ = finish(ppls=[1.0, 1.0, 1.0, 1.0], suite="old", contents=False)
    of_a_plug_in = first.spec.model_copy(update={"id": "0" * 12, "head": ComponentSpec(name="of_a_plug_in")})
    strange = first.model_copy(update={"spec": of_a_plug_in, "contents": Contents(corpus="0" * 64)})
    store.save(strange, store.runs_folder(results, "strange"))
    done = harness("leaderboard", "--results", results)
    assert done.code == 0
    assert done.err.count("does not say what it read, so its id cannot be confirmed") == 4
    assert "Left out: 1 trial whose text is not known" in done.out
    assert "old" not in done.out.partition("## What")[0]


def test_a_record_that_is_not_its_trials_is_named_and_left_out(results, finish, harness):
    (first, *_) = finish(ppls=[10.0, 12.0, 9.0, 9.5])
    foreign = first.model_copy(update={"contents": Contents(corpus="0" * 64)})
    store.save(foreign, store.runs_folder(results, "small"))
    done = harness("leaderboard", "--results", results)
    assert done.err.startswith(f"warning: the record of trial {first.id} is not of that trial")
    assert re.search(r"softmax +\| lstm +\| +13\.00 +\| +12\.00 +\| 1 ", done.out)


def test_a_trial_in_two_suites_counts_once_where_its_results_agree(finish, found):
    young, old = (handmade.environment(finished=f"2026-0{month}-02T03:05:05+00:00") for month in (3, 2))
    slower = {"params_total": 780.0, "train_ms_per_batch": 50.0, "peak_memory_mib": 800.0}  # a time is no result
    finish(ppls=[10.0, 12.0, 9.0, 9.5], environment=old)
    finish(ppls=[10.0, None, 9.0, 9.5], suite="other", environment=young, more=slower)
    (group,) = found()
    softmax = next(line for line in lines(group) if line["head"] == "softmax")
    # seed 1 from 'other', where it is newer; seed 2 from 'small', where it is ok
    assert (softmax["test ppl"], softmax["seeds"], softmax["suites"]) == ("11.00 ± 1.41", "2", "other, small")
    assert (softmax["finished"], softmax["peak MiB"]) == ("2026-03-02", "600 ± 283")  # mean and sd of 400 and 800


def test_a_trial_with_other_results_in_a_second_suite_is_in_no_mean_whatever_its_date(finish, harness, results):
    (first, *_) = finish(ppls=[10.0, 12.0, 9.0, 9.5])
    later = handmade.environment(finished="2026-02-02T03:05:05+00:00")
    finish(suite="forged", environment=later, ppls=[1.5, 0, 0, 0])
    done = harness("leaderboard", "--results", results)
    runs = results / "runs"
    assert done.code == 0
    assert done.err == (
        f"warning: trial {first.id} has different results in {runs / 'forged' / first.id} (1.50) and "
        f"{runs / 'small' / first.id} (10.00): it is left out\n"
    )
    assert re.search(r"softmax +\| lstm +\| +13\.00 +\| +12\.00 +\| 1 ", done.out)
    named = f"{first.id} (1.50 in forged and 10.00 in small)"
    assert f"Left out: trials of which two suites have different results: {named}." in done.out


def test_a_trial_that_another_machine_rounded_differently_counts_once_and_without_a_warning(finish, harness, results):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    later = handmade.environment(finished="2026-02-02T03:05:05+00:00")
    finish(suite="other", environment=later, ppls=[10.3, 0, 0, 0], weights_sha256="cd" * 32)  # 3 %: below the 5 %
    done = harness("leaderboard", "--results", results)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"softmax +\| lstm .* 2 +\|", done.out)  # both seeds count
    assert "different results" not in done.out


def test_a_trial_that_is_invalid_in_one_suite_does_not_count_by_an_older_record_in_another(finish, harness, results):
    (first, *_) = finish(ppls=[1.5, 12.0, 9.0, 9.5])
    invalid = {"status": "invalid", "certificate": handmade.certificate(nll_gap=0.7)}
    finish(ppls=[1.5, 0, 0, 0], suite="again", **invalid)
    done = harness("leaderboard", "--results", results)
    assert f"trial {first.id} has different results" in done.err
    assert f"have different results: {first.id} (1.50 in small and invalid in again)." in done.out
    assert re.search(r"softmax +\| lstm +\| +13\.00 +\| +12\.00 +\| 1 ", done.out)


def test_rows_that_differ_in_how_they_were_trained_say_so(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    finish(("lr: 0.01", "lr: 0.02"), ("batch_size: 4", "batch_size: 8"), ppls=[8.0, 8.0, 7.0, 7.0], suite="other")
    (group,) = found()
    assert [line["training"] for line in lines(group)] == ["lr=0.02, batch_size=8"] * 2 + ["lr=0.01, batch_size=4"] * 2


def test_times_of_an_exclusive_pass_win_and_shared_ones_are_marked(results, finish, found):
    softmax, *_ = finish(ppls=[10.0, 12.0, 9.0, 9.5], environment=handmade.environment(shared=True))
    timing = timing_of(softmax, device="another processor")
    sidecars.save_timing(timing, store.runs_folder(results, "small"))
    (group,) = found()
    assert {line["head"]: (line["train ms/batch"], line["device"]) for line in lines(group)} == {
        "softmax": ("3.5", "another processor"),
        "MoS 2": ("5.0 ± 0.0 ‡", "a processor"),
    }


def test_the_command_writes_all_and_shows_the_corpora_asked_for(results, finish, harness):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    finish(("markov: {vocab_size: 12, num_tokens: 400, branching: 3}", "embedded"), ppls=[80.0, 0, 0, 0], suite="other")
    done = harness("leaderboard", "--results", results, "--corpus", "embedded")
    assert (done.code, done.err) == (0, "")
    assert "## embedded, 2 epochs, context 7" in done.out
    assert "markov" not in done.out
    whole = (results / "tables" / "leaderboard.md").read_text()
    assert "## embedded" in whole
    assert "## markov, 2 epochs, context 7" in whole
    before = (results / "tables" / "leaderboard.md").stat().st_mtime_ns
    assert whole in harness("leaderboard", "--results", results).out
    assert (results / "tables" / "leaderboard.md").stat().st_mtime_ns == before


def test_json_is_alone_unrounded_and_writes_nothing(results, finish, harness):
    finish(ppls=[10.0, 12.0, 9.0, None])
    done = harness("leaderboard", "--results", results, "--json")
    assert (done.code, done.err) == (0, "")
    (group,) = json.loads(done.out)["groups"]
    assert [(row["head"]["name"], row["test_ppl"], row["seeds"]) for row in group["rows"]] == [
        ("mos", 9.0, [1]),
        ("softmax", 11.0, [1, 2]),
    ]
    assert group["rows"][0]["statuses"] == {"ok": 1, "diverged": 1}
    assert group["rows"][1]["sd"] == pytest.approx(math.sqrt(2))
    assert not (results / "tables").exists()


def test_without_records_or_for_an_unknown_corpus_it_is_one_sentence(results, finish, harness):
    done = harness("leaderboard", "--results", results)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "holds no records to compare" in done.err
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    done = harness("leaderboard", "--results", results, "--corpus", "markow")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--corpus markow: no finished trial has that corpus; did you mean 'markov'? (there are: markov)" in done.err


def test_no_suite_takes_the_leaderboards_name(tmp_path, harness):
    (tmp_path / "suite.yaml").write_text(handmade.changed(("name: small", "name: leaderboard")))
    done = harness("plan", tmp_path / "suite.yaml")
    assert done.code == 2
    assert "suite.yaml:1:7: name: must not be 'leaderboard'" in done.err


def test_a_row_of_two_versions_of_a_head_is_marked_and_averages_one_of_them(finish, found):
    (spec,) = {record.spec.head.name: record.spec for record in finish(ppls=[10.0, 12.0, 0, 0])}.values()
    here = hashes.of_trial(spec)
    finish(ppls=[10.0, 0, 0, 0], code=here.model_copy(update={"head": "0" * 64}))
    finish(ppls=[0, 12.0, 0, 0], code=here)
    (group,) = found()
    (line,) = lines(group)
    assert (line["head"], line["test ppl"], line["seeds"]) == ("softmax ¶", "12.00", "1; 1 of other code")
    (row,) = leaderboard.groups_json((group,))[0]["rows"]
    assert (row["test_ppl"], row["seeds"], row["outdated"], row["left_out"]) == (12.0, [2], [1], [1])
    notes = leaderboard.table(group).notes
    assert "trained by 2 versions of heads/softmax.py. The numbers are of seed 2 only." in " ".join(notes)


def test_a_row_whose_code_has_changed_since_is_marked_and_keeps_its_mean(finish, found):
    (record, _) = finish(ppls=[10.0, 12.0, 0, 0])
    code = hashes.of_trial(record.spec).model_copy(update={"backbone": "0" * 64})
    finish(ppls=[10.0, 12.0, 0, 0], code=code)
    (line,) = lines(found()[0])
    assert (line["head"], line["test ppl"], line["seeds"]) == ("softmax ¶", "11.00 ± 1.41", "2")


@pytest.mark.needs("pretrained")
@pytest.mark.parametrize(
    ("params", "content", "pretrained"),
    [
        ({"model": "x"}, "a" * 64, True),
        ({"model": "x", "weights": "random"}, "a" * 64, False),  # its architecture is in files
        ({"config": {"model_type": "llama"}}, None, False),
    ],
)
def test_a_backbone_with_random_weights_is_not_pretrained(params, content, pretrained):
    spec = handmade.record().spec.model_copy(update={"backbone": ComponentSpec(name="hf", params=params)})
    assert is_pretrained(spec, Contents(corpus="b" * 64, backbone=content)) is pretrained


@pytest.fixture
def board(results, tmp_path):
    """A function: suite -> its text -> the groups, with the labels of these files."""

    def read(**suites):
        (tmp_path / "suites").mkdir(exist_ok=True)
        for name, text in suites.items():
            (tmp_path / "suites" / f"{name}.yaml").write_text(text)
        return leaderboard.load(results, pytest.fail, tmp_path / "suites").groups

    return read


LABELLED = ("  - mos: {num_mixtures: 2}", "  - mos: {num_mixtures: 2, label: two}")


def test_rows_have_the_labels_of_their_suites(finish, board):
    finish(LABELLED, ppls=[10.0, 12.0, 9.0, 9.5])
    (group,) = board(small=handmade.changed(LABELLED))
    assert [entry.row.head for entry in group.entries] == ["two", "softmax"]
    (group,) = board(small="heads: {")  # no suite: names by the rule
    assert [entry.row.head for entry in group.entries] == ["MoS 2", "softmax"]


def test_no_row_has_a_label_of_another_suite(finish, board):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    longer = ("epochs: 2", "epochs: 3")
    finish(LABELLED, longer, ppls=[10.0, 12.0, 9.0, 9.5], suite="other")
    two, three = board(small=handmade.changed(), other=handmade.changed(LABELLED, longer))
    assert [entry.row.head for entry in two.entries] == ["MoS 2", "softmax"]
    assert [entry.row.head for entry in three.entries] == ["two", "softmax"]


def test_a_corpus_has_the_label_of_its_suite_or_else_a_name_by_the_rule_of_heads(finish, board):
    chain, other = (("branching: 3", text) for text in ("branching: 3, label: a chain", "branching: 4"))
    finish(chain, ppls=[10.0, 12.0, 9.0, 9.5])
    finish(other, ppls=[10.0, 12.0, 9.0, 9.5], suite="other")
    groups = board(small=handmade.changed(chain), other=handmade.changed(other))
    assert [leaderboard.table(group).title for group in groups] == [
        "a chain, 2 epochs, context 7",
        "markov, branching 4, 2 epochs, context 7",
    ]
    assert "one text (a chain), " in leaderboard.table(groups[0]).lead
