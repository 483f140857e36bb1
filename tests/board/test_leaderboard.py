"""The leaderboard: what compares stands together, what does not never does; each trial once."""

import json
import math
import re

import handmade
import pytest
import texts

from harness import plan
from harness.board import leaderboard
from harness.board.groups import gather, groups, is_pretrained
from harness.plan.specs import ComponentSpec, Contents
from harness.records import store
from harness.records.record import CurvePoint

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


def lines(group) -> list[dict[str, str]]:
    """The texts of a group's table."""
    table = leaderboard.table(group)
    names = [column.name for column in table.columns]
    return [dict(zip(names, [cell.text for cell in line.cells], strict=True)) for line in table.lines]


def test_mean_spread_and_difference_to_the_first_over_shared_seeds_by_hand(finish, found):
    finish(ppls=[10.0, 11.4, 9.0, 9.5])  # softmax seeds 1, 2; mos seeds 1, 2
    best, other = lines(found()[0])
    # sd of 9 and 9.5: 0.25 * sqrt(2) = 0.354; of 10 and 11.4: 0.7 * sqrt(2) = 0.990
    assert (best["head"], best["test ppl"], best["seeds"]) == ("MoS 2", "9.25 ± 0.35", "2")
    assert (other["head"], other["test ppl"], other["seeds"]) == ("softmax", "10.70 ± 0.99", "2")
    assert (best["rank"], best["vs best"], best["pairs"]) == ("-", "-", "-")  # two seeds give no rank
    # log(10 / 9) = 0.10536 and log(11.4 / 9.5) = 0.18232, so mean 0.14384; the standard error of two values is half of
    # their distance; t(0.975) of one degree of freedom is 12.7062
    reach = 12.7062 * (math.log(11.4 / 9.5) - math.log(10 / 9)) / 2
    low, high = (100 * math.expm1(0.14384 + part) for part in (-reach, reach))
    assert (other["rank"], other["vs best"]) == ("-", f"+15.5 % [{low:+.1f}, {high:+.1f}]")


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


def row(mean: float, sign: int = 1) -> list[float]:
    return [mean + sign * each for each in NOISE]


LAST = [10 + each for each in (-0.6, -0.5, -0.3, 0.0, 3.0, 4.4)]  # 11 on average


@pytest.mark.parametrize(
    ("rows", "ranked", "first"),
    [
        # the differences of the second row to the first, and of the fourth to the third, have both signs
        (
            (row(10), row(10.01, -1), row(12), row(12.01, -1)),
            ("1-2", "1-2", "3-4", "3-4"),
            "softmax; MoS 2 (2 share rank 1)",
        ),
        # 100 * (10.05 / 10 - 1) = 0.5 %, 0.9 %, which are within the margin, and 4 %; intervals of some 0.01
        (
            (row(10), row(10.05), row(10.09), row(10.4)),
            ("1-3", "1-3", "1-3", "4"),
            "softmax; MoS 2; MoS 3 (3 share rank 1)",
        ),
        # the difference of the last row to the first, from -0.6 to 4.4, may be 0: none before it ranks behind it
        ((row(10), row(10.3), row(10.6), LAST), ("1-4",) * 4, "softmax; MoS 2; MoS 3; ... (4 share rank 1)"),
    ],
)
def test_rows_share_a_rank_as_far_as_they_cannot_be_distinguished(ranks, found, rows, ranked, first):
    heads = ("softmax", "MoS 2", "MoS 3", "MoS 4")
    assert list(ranks(*rows).items()) == list(zip(heads, ranked, strict=True))
    groups = found()
    as_json = leaderboard.groups_json(groups)[0]["rows"]
    assert as_json[0]["last_rank"] == int(ranked[0][-1])
    (line,) = leaderboard.contents(groups, groups).lines
    assert (line.cells[-1].text, line.cells[1].link) == (first, "#table-1")


def test_tables_that_rank_nothing_are_hidden_where_others_rank(ranks, found, finish, results, harness):
    ranks(*map(row, (10, 12, 14, 16)))
    finish(("epochs: 2", "epochs: 1"), ppls=[10.0, 12.0, 9.0, 9.5], suite="few", more={"best_epoch": 1.0})
    shown, everything = (harness("leaderboard", "--results", results, *more).out for more in ((), ("--all",)))
    assert (shown.count("These rows compare"), everything.count("These rows compare")) == (1, 2)
    assert "Not shown: 1 table in which no row can be ranked; harness leaderboard --all shows them." in shown
    assert all("1 epoch, context 7" in text for text in (shown, everything))  # the contents name both


def test_a_row_whose_validation_and_test_disagree_has_a_note(finish, found):
    seeds = ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6]")
    for seed, noise in enumerate(NOISE, start=1):
        for place, ppl, level in ((0, 10.5 + noise, 8.9 + noise / 5), (1, 10.0 + noise, 9.0 - noise / 5)):
            ppls = [0] * 12
            ppls[6 * place + seed - 1] = ppl
            finish(seeds, ppls=ppls, more={"valid_ppl": level})
    (note,) = (note for note in leaderboard.table(found()[0]).notes if "disagree" in note)
    # log(10.5 / 10) = 0.0488, and log(8.9 / 9) = -0.0112 on average
    assert " softmax on lstm against MoS 2: +5.0 % [" in note
    assert ", but -1.1 % [" in note


def test_failed_trials_are_counts_and_rows_without_a_number_come_last(finish, found):
    finish(ppls=[None, None, 50.0, None])
    (group,) = found()
    assert [(line["head"], line["test ppl"], line["seeds"]) for line in lines(group)] == [
        ("MoS 2", "50.00", "1; 1 diverged"),
        ("softmax", "-", "0; 2 diverged"),
    ]


def test_what_does_not_compare_is_in_tables_of_their_own_whose_titles_name_what_differs(finish, found):
    titles = {
        "small": ("small", "small", "markov, seed 0, 2 epochs, context 7, eval_batch_size=10"),
        "other": (
            "seq_len: 7",
            "seq_len: 7, eval_batch_size: 5",
            "markov, seed 0, 2 epochs, context 7, eval_batch_size=5",
        ),
        "longer": ("epochs: 2", "epochs: 3", "markov, seed 0, 3 epochs, context 7"),
        "seeded": ("branching: 3", "branching: 3, seed: 1", "markov, seed 1, 2 epochs, context 7"),
        "both": ("lstm:", "bilstm:", "markov, seed 0, 2 epochs, context 7, trained in both directions"),
    }
    for suite, (old, new, _) in titles.items():
        finish((old, new), ppls=[10.0, 12.0, 9.0, 9.5], suite=suite)
    named = {entry.suites: leaderboard.table(group).title for group in found() for entry in group.entries}
    assert named == {(suite,): title for suite, (_, _, title) in titles.items()}
    assert [len(group.entries) for group in found()] == [2] * 5


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


LATER = {"environment": handmade.environment(finished="2026-02-02T03:05:05+00:00")}
INVALID = {"status": "invalid", "certificate": handmade.certificate(nll_gap=0.7)}


@pytest.mark.parametrize(
    ("ppl", "second", "changes", "left_out"),
    [
        (10.0, 1.5, LATER, "(1.50 in again and 10.00 in small)"),  # forged, whatever its date
        (1.5, 1.5, INVALID, "(1.50 in small and invalid in again)"),  # not by the older record
        (10.0, 10.3, {**LATER, "weights_sha256": "cd" * 32}, ""),  # rounded on another machine: 3 %, below the 5 %
    ],
)
def test_a_trial_with_other_results_in_a_second_suite_is_in_no_mean(
    finish, harness, results, ppl, second, changes, left_out
):
    (first, *_) = finish(ppls=[ppl, 12.0, 9.0, 9.5])
    finish(suite="again", ppls=[second, 0, 0, 0], **changes)
    done = harness("leaderboard", "--results", results)
    assert done.code == 0
    if left_out:
        assert done.err.startswith(f"warning: trial {first.id} has different results in {results / 'runs'}")
        assert f"Left out: trials of which two suites have different results: {first.id} {left_out}." in done.out
        assert re.search(r"softmax +\| lstm +\| +13\.00 +\| +12\.00 +\| 1 ", done.out)
    else:
        assert (done.err, "different results" in done.out) == ("", False)
        assert re.search(r"softmax +\| lstm .* 2 +\|", done.out)  # both seeds count


def test_rows_that_differ_in_how_they_were_trained_say_so(finish, found):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    finish(("lr: 0.01", "lr: 0.02"), ("batch_size: 4", "batch_size: 8"), ppls=[8.0, 8.0, 7.0, 7.0], suite="other")
    (group,) = found()
    assert [line["training"] for line in lines(group)] == ["lr=0.02, batch_size=8"] * 2 + ["lr=0.01, batch_size=4"] * 2


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
    json.loads(harness("leaderboard", "--results", results, "--json").out)
    assert (results / "tables" / "leaderboard.md").stat().st_mtime_ns == before


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


def test_rows_have_the_labels_of_their_own_suites(finish, board):
    finish(ppls=[10.0, 12.0, 9.0, 9.5])
    longer = ("epochs: 2", "epochs: 3")
    finish(LABELLED, longer, ppls=[10.0, 12.0, 9.0, 9.5], suite="other")
    for text, label in ((handmade.changed(LABELLED, longer), "two"), ("heads: {", "MoS 2")):  # no suite: by the rule
        two, three = board(small=handmade.changed(), other=text)
        assert [entry.row.head for entry in two.entries] == ["MoS 2", "softmax"]
        assert [entry.row.head for entry in three.entries] == [label, "softmax"]


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
