"""Which form of the loss runs: right forms agree with the equations, planted faults are refused and left out.

Without a GPU, forms are checked on the CPU here, with stand-ins for Triton's kernels. The kernels themselves:
tests/gpu/triton_interpreted.py.
"""

import contextlib
from dataclasses import replace

import pytest
import torch

from harness import kernels
from harness.distributions import Mixture
from harness.kernels import choice, forms, planted, rows
from harness.kernels.agreement import fault_of
from harness.kernels.choice import FormChoice, using
from harness.kernels.forms import LEAN, by_log_sums, by_rows
from harness.kernels.products import Products
from harness.kernels.products import using as using_products

CPU = torch.device("cpu")
CASES = {case.name: case for case in planted.CASES}
PRECISIONS = ["fp32", "tf32", "bf16"]


def for_training(combine=rows.combine_rows_):
    return by_rows("rows", combine=combine, what="a kernel", fits=lambda mixture, gradients: True)


def for_evaluation(log_sum_exp):
    what, fits = "a kernel", lambda mixture, gradients: not gradients
    return by_log_sums("log_sum_exp", log_sum_exp=log_sum_exp, what=what, fits=fits)


def log_sum_exp(rows_RE, weight_VE, bias_V, *, precision):
    """What harness.gpu.triton_evaluation says it computes."""
    if precision == "bf16":
        rows_RE, weight_VE = rows_RE.bfloat16(), weight_VE.bfloat16()
    logits_RV = rows_RE.double() @ weight_VE.double().t()
    return (logits_RV if bias_V is None else logits_RV + bias_V.double()).logsumexp(-1).float()


def faulty(before=lambda blocks: None, after=lambda result, blocks: result):
    """torch's own form with a fault before or after the rows are combined."""

    def combine(blocks, *rest):
        before(blocks)
        return after(rows.combine_rows_(blocks, *rest), blocks)

    return for_training(combine)


def forget_the_last_odd_column(blocks):
    for block in blocks:
        if block.shape[-1] % 2:
            block[..., -1] = -torch.inf


def leave_the_last_column(result, blocks):
    blocks[0][..., -1] = 1.0
    return result


def scaled(field, factor, when=lambda blocks: True):
    """A field of the result times a factor, where the blocks are such."""

    def after(result, blocks):
        return result._replace(**{field: factor * getattr(result, field)}) if when(blocks) else result

    return after


def of_the_second_half(result, blocks):
    result.nll[len(result.nll) // 2 :] *= 1.001
    return result


def of_bfloat16(blocks):
    return blocks[0].dtype == torch.bfloat16


def in_parts(blocks):
    return len(blocks) > 1


def tried(form, name, precision="fp32", *, gradients=True, z_loss=0.0) -> str:
    """What is wrong with a form on a planted batch."""
    mixture, targets_N = planted.batch(CASES[name], CPU)
    with using_products(Products(precision=precision)), torch.set_grad_enabled(gradients):
        return fault_of(form, mixture, targets_N, z_loss)


@pytest.mark.system
@pytest.mark.parametrize("form", [LEAN, forms.STORED], ids=["chunked", "stored"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_torchs_own_operations_agree(name, precision, form):
    assert tried(form, name, precision) == ""
    assert tried(form, name, precision, z_loss=0.1) == ""
    assert tried(form, name, precision, gradients=False) == ""


@pytest.mark.system
@pytest.mark.parametrize("confidence", [0.5, 4.0, 12.0])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_they_agree_on_batches_of_trained_models_too(precision, confidence):
    """Large logits, of which the target's is often the largest: their rounding must be no false alarm."""
    generator = torch.Generator().manual_seed(0)
    N, K, V, width = 300, 2, 1000, 128
    weight = torch.randn(V, width, generator=generator)
    targets_N = torch.randint(V, (N,), generator=generator)
    facets = 0.3 * torch.randn(N, K, width, generator=generator) + confidence * weight[targets_N][:, None] / width**0.5
    prior, bias = torch.randn(N, K, generator=generator).log_softmax(-1), 3 * torch.randn(V, generator=generator)
    given = [each.requires_grad_() for each in (facets, prior, weight, bias)]
    with using_products(Products(precision=precision)):
        assert fault_of(LEAN, kernels.Tensors(*given, (1, 1)), targets_N) == ""


FAULTS = {
    "the nll by a factor": (faulty(after=scaled("nll", 1.001)), "one component", "the loss is wrong"),
    "a nll that is no number": (faulty(after=scaled("nll", torch.nan)), "one component", "the loss is wrong by nan"),
    "the last odd column": (faulty(before=forget_the_last_odd_column), "many words", "the loss is wrong"),
    "the last column is not written": (faulty(after=leave_the_last_column), "three components", "the gradient of"),
    "a gradient only": (faulty(after=scaled("scale", 1.01)), "three components", "the gradient of"),
    "the prior's gradient only": (faulty(after=scaled("share", 1.01)), "three components", "gradient of the prior"),
    "partitions only": (faulty(after=scaled("nll", 1.001, in_parts)), "partitions 4, 1, 1", "the loss is wrong"),
    "few of many tokens": (faulty(after=of_the_second_half), "more tokens than are compared", "the loss is wrong"),
}


@pytest.mark.parametrize(("form", "name", "told"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_kernel_for_training_is_refused(form, name, told):
    assert told in tried(form, name)


def test_a_fault_of_bfloat16_only_is_refused_there():
    form = faulty(after=scaled("scale", 2.0, of_bfloat16))
    assert tried(form, "many words") == ""
    assert "the gradient of" in tried(form, "many words", "bf16")


def off_in(wrong):
    """A factor in one precision only."""
    return lambda *rows, precision: log_sum_exp(*rows, precision="fp32") * (1.1 if precision == wrong else 1)


WRONG_SUMS = {
    "factor": (lambda h, W, b, **kw: 1.001 * log_sum_exp(h, W, b, **kw), "one component", "fp32"),
    "last word": (lambda h, W, b, **kw: log_sum_exp(h, W[:-1], b, **kw), "three components", "fp32"),
    "bias": (lambda h, W, b, **kw: log_sum_exp(h, W, None, **kw), "three components with bias", "fp32"),
    "bf16 only": (off_in("bf16"), "one component", "bf16"),
}


@pytest.mark.parametrize(("wrong", "name", "precision"), WRONG_SUMS.values(), ids=WRONG_SUMS)
def test_a_wrong_kernel_for_evaluation_is_refused(wrong, name, precision):
    assert "nll is wrong" in tried(for_evaluation(wrong), name, precision, gradients=False)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.logit_map is None])
def test_a_kernel_for_evaluation_that_computes_what_it_says_agrees(name):
    for precision in PRECISIONS:
        assert tried(for_evaluation(log_sum_exp), name, precision, gradients=False) == ""


def tf32(x, *, nearest):
    """x with the 10 bits of tf32's fraction: the 13 others are cut off, or x is rounded to nearest."""
    bits = x.contiguous().view(torch.int32) + (2**12 if nearest else 0)
    return (bits & -(2**13)).view(torch.float32)


@pytest.mark.parametrize(("name", "nearest"), [(name, number % 2 == 0) for number, name in enumerate(CASES)], ids=str)
def test_products_in_tf32_agree(name, nearest, monkeypatch):
    # On the CPU tf32 is float32. Here it is what a matrix unit makes of it. An H100 rounds.
    def in_tf32(multiply, operands):
        def multiplied(self, *tensors, **options):
            given = list(tensors)
            if self.precision == "tf32" and given[-1].dtype == torch.float32:
                given[operands] = [tf32(x, nearest=nearest) for x in given[operands]]
            return multiply(self, *given, **options)

        return multiplied

    for method, operands in (("mm", slice(0, 2)), ("mm_", slice(1, 3)), ("addmm_", slice(1, 3))):
        monkeypatch.setattr(Products, method, in_tf32(getattr(Products, method), operands))
    assert tried(LEAN, name, "tf32") == ""


def test_a_log_normaliser_below_the_targets_logit_is_rounding():
    # one word has all the probability, and its logit is 96: a float32 near 96 has steps of 7.6e-6
    facets, weight = torch.tensor([[[[96.0, 0.0]]]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    mixture = Mixture(facets, None, weight, None)

    def too_low(rows_RE, weight_VE, bias_V, *, precision):
        return log_sum_exp(rows_RE, weight_VE, bias_V, precision=precision) - 1.9e-5

    form = for_evaluation(too_low)
    with torch.no_grad(), using(FormChoice(forms=[form])):
        assert mixture.nll(torch.tensor([[0]])).item() == 0
        assert mixture.nll(torch.tensor([[1]])).item() == pytest.approx(96, abs=1e-4)


@pytest.mark.parametrize("by_log_sums", [True, False])
def test_the_logit_of_a_bfloat16_target_is_not_rounded(by_log_sums):
    # logits 0 and -64.5 * 1.0078125 = -65.00390625, which is -65 in bfloat16; the normaliser is 1
    facets, weight = (torch.tensor(values).bfloat16() for values in ([[[[1.0078125]]]], [[0.0], [-64.5]]))
    form = for_evaluation(lambda *given, precision: torch.zeros(1))
    with using(FormChoice(forms=[form])) if by_log_sums else contextlib.nullcontext():
        nll = Mixture(facets, None, weight).nll(torch.tensor([[1]]))
    assert nll.dtype == torch.float32
    assert nll.item() == 65.00390625


# What runs


class OnGPU(torch.Tensor):
    """A tensor that says it is there."""

    device, is_cuda = torch.device("cuda"), True


def on_gpu(mixture):
    return mixture.changed(facets_NFE=mixture.facets_NFE.detach().as_subclass(OnGPU))


@pytest.fixture
def counted(monkeypatch):
    """The names of the forms that were checked."""
    calls, real = [], choice.fault_of
    monkeypatch.setattr(choice, "fault_of", lambda form, *given: calls.append(form.name) or real(form, *given))
    return calls


def on_cpu(*first, **options) -> FormChoice:
    """A choice that checks its forms on the CPU, too."""
    return FormChoice(forms=[*first, *forms.FORMS], devices=("cpu",), **options)


def asked(name="three components with bias"):
    """A loss with gradients of a planted batch."""
    mixture, targets_N = planted.batch(CASES[name], CPU)
    given = [each for each in mixture.given if each is not None]
    loss = kernels.mean_nll(mixture, targets_N)
    return [loss.detach(), *torch.autograd.grad(loss, given)]


@pytest.mark.parametrize(("installed", "first"), [(True, ["log_sum_exp", "rows"]), (False, [])])
def test_a_gpu_with_triton_is_asked_for_its_kernels_first(monkeypatch, installed, first):
    monkeypatch.setattr(forms, "has_triton", lambda: installed)
    seen = on_gpu(planted.batch(CASES["one component"], CPU)[0])
    fitting = [form.name for form in forms.FORMS if form.fits(seen, False)]
    assert fitting == [*first, "lean", "equations in chunks", "equations"]
    assert [form.name for form in forms.FORMS if form.fits(seen, True)][: len(first[1:])] == first[1:]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("one component", torch.float64), ("one component", torch.float32), ("a bend", torch.bfloat16)],
    ids=str,
)
def test_what_tritons_kernels_are_not_made_for_is_left_to_torch(monkeypatch, name, dtype):
    monkeypatch.setattr(forms, "has_triton", lambda: True)
    case = CASES[name]
    mixture = on_gpu(planted.batch(case, CPU, dtype)[0])
    narrow = dtype != torch.float64
    assert forms.ROWS.fits(mixture, True) == narrow
    assert forms.LOG_SUMS.fits(mixture, False) == (narrow and case.logit_map is None)
    assert not forms.LOG_SUMS.fits(mixture, True)


def test_the_form_that_trains_is_checked_at_the_first_batch_and_on_the_cpu_none(counted):
    with using(FormChoice()) as _:
        asked()
        assert choice.current().devices == ("cuda",)
    assert counted == []
    with using(on_cpu(for_training())) as _:
        with torch.no_grad():
            kernels.nll(*planted.batch(CASES["three components with bias"], CPU))
        for name in ("three components with bias", "three components with bias", "one component"):
            asked(name)
        assert choice.current().trained_by == "rows"
    assert counted == ["rows"]


def test_what_is_wrong_is_left_out_with_a_sentence_and_the_next_form_runs(counted):
    told, form = [], faulty(after=scaled("scale", 1.01))
    with using(FormChoice()):
        expected = asked()
    with using(on_cpu(form, log=told.append)) as _:
        current = choice.current()
        found = asked(), asked("one component")
    assert all(torch.equal(a, b) for a, b in zip(found[0], expected, strict=True))
    assert counted == ["rows", "lean"]
    assert current.trained_by == "lean"
    assert list(current.left_out) == ["rows"]
    (sentence,) = told
    assert sentence.startswith("Left out on this device: a kernel, since the gradient of the facets is wrong by")
    assert sentence.endswith("another form of it runs instead")
    assert current.sentences() == (sentence,)


def test_where_the_lean_evaluation_is_left_out_the_equations_run(monkeypatch):
    mixture = Mixture(torch.ones(1, 1, 1, 2, requires_grad=True), None, torch.zeros(4, 2))
    monkeypatch.setattr(forms, "lean", lambda *arguments: pytest.fail("the lean evaluation ran"))
    with using(FormChoice(left_out={"lean": "it was wrong"}, log=lambda sentence: None)):
        for loss in (mixture.mean_nll(torch.tensor([[1]])), mixture.nll(torch.tensor([[1]]))):
            torch.testing.assert_close(loss.sum().detach(), torch.tensor(4.0).log())
        assert mixture.statistics().entropy.item() == pytest.approx(torch.tensor(4.0).log().item())


def raising(error):
    def combine(*given):
        raise error

    return for_training(combine)


def test_what_raises_is_left_out_with_its_first_line_but_want_of_memory_says_nothing_of_a_form():
    form = raising(RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA"))
    with using(on_cpu(form, log=lambda sentence: None)):
        asked()
        left_out = choice.current().left_out
    assert left_out == {"rows": "it raised RuntimeError: CUDA error: misaligned address"}
    current = on_cpu(raising(torch.OutOfMemoryError("CUDA out of memory")))
    with using(current), pytest.raises(torch.OutOfMemoryError):
        asked()
    assert current.left_out == {}


def test_parts_that_are_no_forms_have_sentences_too():
    graph, gone = FormChoice(left_out={"graph": "it differs", "an old form": "it was wrong"}).sentences()
    assert "the CUDA graph of the training step, since it differs; steps run operation by operation" in graph
    assert "an old form, since it was wrong; other code runs" in gone


def test_a_form_that_is_wrong_with_a_z_loss_only_is_refused_there():
    def mean_nll(mixture, targets_N, weight_N, z_loss):
        return LEAN.mean_nll(mixture, targets_N, weight_N, 1.1 * z_loss)

    mixture, targets_N = planted.batch(CASES["one component"], CPU)
    for z_loss, taken in ((0.0, "wrong"), (0.5, "lean")):
        current = on_cpu(replace(LEAN, name="wrong", mean_nll=mean_nll), log=lambda sentence: None)
        assert current.form(mixture, targets_N, z_loss).name == taken


def stored(when=True):
    return replace(forms.STORED, fits=lambda mixture, gradients: gradients and when)


@pytest.mark.parametrize(("pieces", "taken"), [("auto", "stored"), ("stored", "stored"), ("chunked", "lean")])
def test_a_suite_may_say_which_form_trains(pieces, taken):
    with using(FormChoice(pieces, forms=[stored(), *forms.FORMS])):
        asked()
        assert choice.current().trained_by == taken


def test_the_equations_run_where_every_form_of_that_kind_is_left_out():
    left_out = {form.name: "it was wrong" for form in forms.FORMS if form.pieces}
    current = FormChoice("stored", forms=[stored(), *forms.FORMS], left_out=left_out)
    with using(current):
        asked()
    assert current.trained_by.startswith("equations")


def test_a_stored_form_that_cannot_be_had_is_refused():
    current = FormChoice("stored", forms=[stored(when=False), *forms.FORMS])
    with using(current), pytest.raises(ValueError, match="loss_form is stored, which this head, batch or device"):
        asked()
    with using(current), torch.no_grad():
        kernels.nll(*planted.batch(CASES["one component"], CPU))  # evaluation stores nothing


def test_a_stored_form_without_room_gives_way_to_chunks():
    def no_room(*given):
        raise torch.OutOfMemoryError("CUDA out of memory")

    current = on_cpu(replace(stored(), mean_nll=no_room), log=lambda sentence: None)
    with using(current):
        asked()
    assert (current.trained_by, current.left_out) == (
        "lean",
        {"stored": "all logits at once do not fit into its memory"},
    )


def test_the_form_of_the_first_batch_is_named_and_the_given_reasons_are_not_changed():
    given, sizes = {"an old form": "it was wrong"}, iter([True, False])
    first = replace(stored(), name="first", fits=lambda mixture, gradients: next(sizes))
    current = FormChoice(forms=[first, *forms.FORMS], left_out=given)
    with using(current):
        asked(), asked()  # the second batch does not fit into the first form
    assert current.trained_by == "first"
    current.leave_out("graph", "it differs")
    assert given == {"an old form": "it was wrong"}


def test_a_check_changes_neither_gradients_nor_random_streams():
    before = torch.get_rng_state()
    mixture, targets_N = planted.batch(CASES["three components"], CPU)
    values = [each.detach().clone() for each in (mixture.facets_NFE, mixture.weight_VE)]
    assert fault_of(LEAN, mixture, targets_N) == ""
    assert mixture.weight_VE.grad is None
    assert all(torch.equal(a, b) for a, b in zip(values, (mixture.facets_NFE, mixture.weight_VE), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_of_a_token_is_enough():
    assert fault_of(LEAN, *planted.batch(CASES["three components"]._replace(N=1), CPU)) == ""
