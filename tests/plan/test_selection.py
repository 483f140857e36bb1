"""What --only may ask for: what it selects has tests/golden/plans/only.yaml."""

from handmade import changed

from harness.plan import load, select
from harness.plan.selection import choices, facts_of, key_texts

SUITE = changed(
    *[
        ("d_model: 8", "d_model: [8, 6]"),
        ("  - mos: {num_mixtures: 2}", "  - mos\n  - mos: {num_mixtures: 2, dropout: 0.2}"),
    ],
    ("[1, 2]", "[0, 1]"),
    ("table: {baseline: softmax}\n", ""),
)


def test_every_choice_is_a_condition_and_they_name_every_trial(write):
    trials = load(write(SUITE)).trials  # 2 backbones x 3 heads x 2 seeds
    assert select(trials, (f"id={trials[3].id}",)) == (trials[3],)
    found = choices(facts_of(trials))
    assert found["head.dropout"] == ["0.0", "0.2"]  # the backbone has a dropout, too
    assert found["dropout"] == ["0.1", "0.0", "0.2"]
    assert "head.num_mixtures" not in found
    assert found["corpus.seed"] == ["0"]  # 'seed' is the trial's
    for key, values in found.items():
        chosen = [select(trials, (f"{key}={value}",)) for value in values]
        if key in ("head", "seed", "d_model", "corpus"):
            assert sum(map(len, chosen)) == len(trials)
    # a key of many values is cut
    many = load(write(SUITE.replace("seeds: [0, 1]", f"seeds: {list(range(30))}"))).trials
    seeds = ", ".join(map(str, range(20)))
    assert f"seed: {seeds} and 10 more" in key_texts(choices(facts_of(many)))
