"""What has to be so before a trial begins: the files that it reads, its model, and the state of the process that
bits and speed depend on.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.containment import guarded
from harness.corpora.corpus import Corpus
from harness.corpora.token_files import TextSource
from harness.corpora.vocabulary import line_end
from harness.errors import ComponentError, CorpusError, WeightsError
from harness.extensions import needed
from harness.kernels import products
from harness.kernels.products import Products
from harness.machine import environment
from harness.model import LanguageModel, build, build_backbone, fingerprint
from harness.plan.identity import is_frozen, starting_content
from harness.plan.specs import ComponentSpec, Contents, TrialSpec
from harness.protocols import CountsText, StartsFromFiles
from harness.random_streams import own_generators
from harness.registry import BACKBONES, CORPORA, HEADS
from harness.training.checkpoint import Checkpoint
from harness.training.evaluation import refuse_stride, state_of
from harness.training.step import refuse_tar, refuse_z_loss
from harness.trial import routes
from harness.trial.task import Task

FROZEN = "harness.pretrained.frozen"
NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(each in str(error) for each in NO_MEMORY)


def fetch_sources(specs: Iterable[TrialSpec], data: Path) -> None:
    """Download the files that are missing and verify the others, once for each corpus and each backbone's weights.
    Compute the states of a frozen backbone, and load the weights of another once: what is wrong with them is found
    before a trial begins.

    Raises: CorpusError; WeightsError, a subclass of it; what `with_states` raises.
    """
    specs = list(specs)
    for corpus in {str(spec.corpus): spec.corpus for spec in specs}.values():
        CORPORA.get(corpus.name)(**corpus.params).fetch(data)
    for backbone in {str(spec.backbone): spec.backbone for spec in specs}.values():
        fetch_weights(backbone)
    refuse_unfit_weights(specs)
    frozen = [spec for spec in specs if is_frozen(spec.backbone, BACKBONES.get(spec.backbone.name))]
    for spec in {f"{each.corpus} {each.backbone} {each.train.seq_len}": each for each in frozen}.values():
        shown = needed(f"{FROZEN}:Shown", f"the frozen backbone {spec.backbone.name}")(spec)
        with_states(spec, CORPORA.get(spec.corpus.name)(**spec.corpus.params).load(data), shown)


def with_states(spec: TrialSpec, corpus: Corpus, *listener: Callable[[str, int, int], None]) -> Corpus:
    """Return a corpus with the states of its tokens under a frozen backbone (harness/pretrained/frozen.py); without
    any for another backbone.
    """
    if not is_frozen(spec.backbone, BACKBONES.get(spec.backbone.name)):
        return replace(corpus, states={})
    found = needed(f"{FROZEN}:with_states", f"the frozen backbone {spec.backbone.name}")
    return found(spec, corpus, *listener)


def refuse_unfit_weights(specs: list[TrialSpec]) -> None:
    """Build each backbone that is trained from files. Raises WeightsError when it cannot be built of them."""
    for spec in {str(spec.backbone): spec for spec in specs}.values():
        backbone, cls = spec.backbone, BACKBONES.get(spec.backbone.name)
        if is_frozen(backbone, cls) or starting_content(backbone, cls) is None:
            continue
        size = CORPORA.get(spec.corpus.name)(**spec.corpus.params).facts().vocab_size
        try:
            build_backbone(backbone, size)
        except ValueError as cause:
            raise WeightsError(str(cause)) from cause


def fetch_weights(backbone: ComponentSpec) -> None:
    """The same for the weights that a backbone starts from, if it starts from any. Raises WeightsError."""
    cls = BACKBONES.get(backbone.name)
    if isinstance(cls, StartsFromFiles):
        try:
            with guarded(f"backbone {backbone.name}", "fetch"):
                cls.fetch(**backbone.params)
        except (OSError, ValueError) as cause:
            raise WeightsError(str(cause)) from cause


def load_planned(spec: TrialSpec, data: Path, contents: Contents | None) -> Corpus:
    """Load a trial's corpus, with the states of a frozen backbone, whose weights are on this machine then.

    Args:
        contents: what the plan was made with; None: nothing is compared.
    Raises: CorpusError when the corpus or the weights are not available, or are not what the plan was made with.
    """
    source = CORPORA.get(spec.corpus.name)(**spec.corpus.params)
    corpus = source.load(data)
    planned = Contents(corpus="") if contents is None else contents
    _refuse_changed(spec.corpus, planned.corpus, partial(_content, source))
    fetch_weights(spec.backbone)
    parts = (spec.backbone, BACKBONES, planned.backbone), (spec.head, HEADS, planned.head)
    for component, registry, content in parts:
        _refuse_changed(component, content, partial(starting_content, component, registry.get(component.name)))
    return with_states(spec, corpus)


def _content(source: Any) -> str:
    """The content of a corpus. Other facts of a text need all of it to be compared."""
    return source.identity_of_tokens() if isinstance(source, TextSource) else source.facts().content


def _refuse_changed(component: ComponentSpec, planned: str | None, content: Callable[[], str | None]) -> None:
    if not planned:
        return
    try:
        found = content()
    except (OSError, ValueError) as cause:
        raise WeightsError(str(cause)) from cause
    if found != planned:
        raise CorpusError(f"{component} has changed since the trials were planned; run the command again")


def built_model(spec: TrialSpec, corpus: Corpus, device: torch.device) -> LanguageModel:
    """The initialised model of a trial on a device. Raises ExecutionError for settings that do not fit the model."""
    model = model_of(spec, corpus).to(device)
    if spec.train.eval_stride is not None:
        refuse_stride(spec.train.evaluation, state_of(model))  # before an epoch is trained
    if spec.train.z_loss:
        refuse_z_loss(model)
    if spec.train.tar:
        refuse_tar(model)
    return model


def trained_model(spec: TrialSpec, corpus: Corpus, weights: dict[str, Tensor]) -> LanguageModel:
    """The model of a trial with weights of it, on the CPU."""
    model = model_of(spec, corpus)
    model.load_state_dict(weights)
    return model


def model_of(spec: TrialSpec, corpus: Corpus) -> LanguageModel:
    """The initialised model of a trial, on the CPU. Its head knows what it needs of the corpus."""
    return build(
        spec.backbone,
        spec.head,
        vocab_size=corpus.vocab_size,
        seed=spec.seed,
        token_counts=corpus.token_counts.cpu(),
        token_bytes=corpus.token_bytes,
    )


def count_text(model: LanguageModel, corpus: Corpus, tokens: int | None = None) -> dict[str, float]:
    """Let a head that counts read the training text, or so many tokens of it. Returns its metrics; {} of others."""
    head = model.head
    if not isinstance(head, CountsText):
        return {}
    before = fingerprint(model.backbone)
    found = head.count(corpus.train[:tokens], line_end(corpus))
    if fingerprint(model.backbone) != before:
        raise ComponentError(
            f"{model.head_name} changed weights of {model.backbone_name} while it counted the text: other heads begin "
            "with other ones, so that the comparison would not be of heads"
        )
    return found


def with_exact_route(task: Task, resumed: Checkpoint | None = None) -> Task:
    """The task with a route of products that is exact on this machine: the checkpoint's, its own, or torch's."""
    if task.device != "cpu":
        return task
    return replace(task, route=routes.checked_route(task.route if resumed is None else resumed.session.route))


@contextmanager
def conditions(task: Task) -> Iterator[None]:
    """Within it threads, determinism, random generators and route of products are the trial's."""
    device, multiplied = torch.device(task.device), Products(route=task.route)
    with (
        environment.torch_threads(task.threads),
        environment.deterministic_algorithms(task.spec.train.deterministic),
        own_generators(task.spec.seed, device),
        products.using(multiplied),
        multiplied.switched(device),
        multiplied.attention(device, task.spec.train.seq_len),
    ):
        yield
