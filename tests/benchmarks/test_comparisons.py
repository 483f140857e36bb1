"""What is compared, and what measuring does: all agree before they are timed, in turns. No speed is asserted."""

import dataclasses
import functools
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from harness.benchmarks import comparisons, implementations, settings
from harness.benchmarks.comparisons import Comparison, memory, timed
from harness.benchmarks.implementations import IMPLEMENTATIONS, Implementation
from harness.benchmarks.record import Cell
from harness.benchmarks.settings import SETTINGS, Setting
from harness.benchmarks.workloads import workloads
from harness.errors import ExecutionError
from harness.kernels import choice, chunked, forms

CPU = torch.device("cpu")
FP32, BF16 = ("fp32", "default"), ("bf16", "default")


def compared(kind: str = "head", **changes) -> Comparison:
    impls = tuple(name for name in IMPLEMENTATIONS if name != "compiled")
    given = {"setting": SETTINGS["tiny"], "device": CPU, "heads": ("softmax",), "impls": impls, "ways": [FP32, BF16]}
    return Comparison(**{"kind": kind, "rounds": 1, **given, **changes})


@pytest.fixture
def replaced(monkeypatch):
    """A function that replaces an implementation by one that raises an error, or that gives a wrong loss."""

    def replace(name: str, error: Exception | None, *, library: bool = False) -> None:
        def evaluate(mixture, targets):
            if error is not None:
                raise error
            return 1.001 * implementations.target_only(mixture, targets)

        monkeypatch.setitem(IMPLEMENTATIONS, name, Implementation(lambda: evaluate, library=library))

    return replace


def test_a_wrong_loss_is_refused_before_anything_is_timed(replaced, monkeypatch):
    replaced("target-only", None)
    monkeypatch.setattr(comparisons, "interleaved", lambda *_: pytest.fail("timed"))
    with pytest.raises(ExecutionError, match=r"softmax target-only fp32 default: the loss is .* nothing is timed"):
        timed(compared())


def test_a_library_that_fails_is_lacking_and_a_baseline_without_memory_too(replaced):
    replaced("torch", RuntimeError("no kernel"), library=True)
    replaced("published", torch.OutOfMemoryError("400 GiB"))
    found = timed(compared("eval"))
    lacking = {(each.impl, each.lacking) for each in found.cells if each.impl in ("torch", "published")}
    assert lacking == {("torch", "failed: RuntimeError"), ("published", "failed: OutOfMemoryError")}


@pytest.mark.parametrize(
    ("impl", "error"), [("ours", torch.OutOfMemoryError("400 GiB")), ("published", RuntimeError("a fault of ours"))]
)
def test_our_own_code_is_not_excused(replaced, impl, error):
    replaced(impl, error)
    with pytest.raises(type(error)):
        timed(compared("eval"))


def test_inference_is_of_the_whole_model_and_of_every_implementation_that_can():
    heads = ("poster-softmax", "poster-mos3", "mfs-inputs")
    found = timed(compared("inference", setting=replace(SETTINGS["tiny"], tokens=40), heads=heads))
    measured = {(each.head, each.impl) for each in found.cells if each.values}
    assert {(head, impl) for head in heads for impl in ("ours", "published", "target-only")} <= measured


def test_products_are_timed_in_turns_with_steps_and_only_with_steps():
    ours = {"impls": ("ours",), "rounds": 3}
    found = timed(compared("step", **ours))
    alone = [(each.cell, len(each.values)) for each in found.products_alone]
    assert alone == [(each.cell, 3) for each in found.cells]
    assert timed(compared("head", **ours)).products_alone == ()


@pytest.mark.parametrize(
    ("kind", "name", "tokens", "said"),
    [
        ("inference", "ptb", 700, "expected gpt2-small or tiny and a multiple of 4 tokens"),
        ("inference", "tiny", 42, "expected gpt2-small or tiny and a multiple of 4 tokens"),
        ("step", "tiny", 71, "a multiple of 35 tokens"),
        ("step", "gpt2-small", 70, "expected ptb, wt2 or tiny"),
    ],
)
def test_other_sizes_are_refused(kind, name, tokens, said):
    with pytest.raises(ExecutionError, match=said):
        timed(compared(kind, setting=replace(SETTINGS[name], tokens=tokens)))


@pytest.mark.system
def test_the_peak_of_the_published_form_holds_all_probabilities():
    # its logits and probabilities are (N, K, V) each, and both are alive: 2 x 20,000 x 2 x 97 x 4 bytes = 30 MB
    wide: Setting = replace(SETTINGS["tiny"], tokens=20_000)
    found = memory(compared("memory", setting=wide, heads=("mos2",), impls=("published",), ways=[FP32]))
    assert found.medians()[Cell("mos2", "published", *FP32)] * 2**20 > 2 * 20_000 * 2 * 97 * 4


def test_a_process_that_fails_is_an_error_for_ours_and_a_lack_for_a_baseline(monkeypatch):
    def killed(*_, **__):
        raise RuntimeError("killed")

    monkeypatch.setattr(comparisons, "in_new_process", killed)
    found = memory(compared("memory", impls=("published", "compiled"), ways=[FP32]))
    assert [(each.impl, each.lacking) for each in found.cells] == [("published", "failed: RuntimeError")]
    with pytest.raises(ExecutionError, match="bench memory: softmax ours fp32 default: killed"):
        memory(compared("memory", impls=("ours",)))


CUDA = torch.device("cuda")


def test_a_mixture_is_named_by_its_size():
    assert settings.component("mos12") == ("mos", {"num_mixtures": 12})
    assert [settings.mixtures(name) for name in ("softmax", "mos7", "mfs", "sigsoftmax")] == [1, 7, 3, 1]


def test_a_setting_takes_other_tokens_and_more_on_a_gpu():
    sizes = [settings.setting_of("gpt2-small", device, tokens).tokens for device in (CPU, CUDA) for tokens in (None, 9)]
    assert sizes == [1024, 9, 4096, 9]


@pytest.fixture
def stored_fits(monkeypatch):
    """As on a GPU, all logits of a batch may be stored at once. Returns the list of the pieces that were trained by."""
    taken = []

    def watched(form):
        def mean_nll(*given):
            taken.append(form.pieces)
            return form.mean_nll(*given)

        return dataclasses.replace(form, fits=lambda mixture, gradients: gradients, mean_nll=mean_nll)

    planted = [watched(each) if each in (forms.LEAN, forms.STORED) else each for each in forms.FORMS]
    monkeypatch.setattr(forms, "FORMS", planted)
    monkeypatch.setattr(comparisons, "Choice", functools.partial(choice.Choice, forms=planted))
    return taken


def test_each_form_has_its_row_and_ours_is_the_one_that_was_chosen_once(stored_fits, monkeypatch):
    chosen = []

    def fastest(asked, *_):
        chosen.append([form.pieces for form in asked])
        return asked[1]

    monkeypatch.setattr(choice, "fastest", fastest)
    found = timed(compared(ways=[FP32], impls=("ours", "ours-chunked", "ours-stored"), rounds=3))
    assert {each.impl: len(each.values) for each in found.cells} == {"ours": 3, "ours-chunked": 3, "ours-stored": 3}
    assert chosen == [["chunked", "stored"]]
    calls = len(stored_fits) // 3
    assert calls > 3
    assert stored_fits.count("chunked") == calls  # of the row of that name only: 'ours' took the other form


def test_without_gradients_there_is_no_choice_of_forms(stored_fits):
    found = timed(compared("eval", ways=[FP32], impls=("ours", "ours-stored")))
    assert {each.impl: each.lacking for each in found.cells} == {"ours": "", "ours-stored": "no choice of forms"}


def test_on_a_cpu_the_row_of_the_stored_form_has_all_logits_at_once(monkeypatch):
    sizes = []

    class Watched(chunked.Buffers):
        def __init__(self, lean):
            super().__init__(lean)
            sizes.append(self.tokens)

    monkeypatch.setattr(chunked, "Buffers", Watched)
    for module in (chunked, forms):
        monkeypatch.setattr(module, "tokens_per_chunk", lambda matrix, partitions: 8)
    found = timed(compared(ways=[FP32], impls=("ours", "ours-stored")))
    assert [each.lacking for each in found.cells] == ["", ""]
    assert sorted(set(sizes)) == [8, SETTINGS["tiny"].tokens]
    assert sizes.count(8) == sizes.count(SETTINGS["tiny"].tokens)


@pytest.mark.parametrize(("kind", "shares"), [("head", True), ("eval", True), ("inference", True), ("step", False)])
def test_heads_share_one_output_matrix_unless_a_step_changes_it(kind, shares):
    made = dict(workloads(kind, replace(SETTINGS["tiny"], tokens=140), ("softmax", "mos2", "mfs"), CPU))
    assert list(made) == ["softmax", "mos2", "mfs"]
    matrices = {id(workload.distribution().weight_VE) for workload in made.values()}
    assert len(matrices) == (1 if shares else 3)


WITHOUT_COLLECTOR = """
import gc, weakref
import torch
from harness.benchmarks import implementations, workloads
from harness.benchmarks.settings import SETTINGS

step, made = workloads.Step(SETTINGS["tiny"], "softmax", torch.device("cpu")), []
step.model.register_forward_hook(lambda model, given, found: made.append(weakref.ref(found[0])))
gc.disable()
step.run(implementations.target_only)
print([each() for each in made])
"""


@pytest.mark.system
def test_a_step_with_a_baseline_leaves_no_graph_of_autograd_for_the_garbage_collector():
    done = subprocess.run([sys.executable, "-c", WITHOUT_COLLECTOR], capture_output=True, text=True, check=True)
    assert done.stdout == "[None]\n"
