"""What trials name that is read from files, corpora and pretrained weights, made ready before any of them starts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from harness.containment.calls import calling
from harness.corpora.corpus import Corpus
from harness.errors import CorpusError, WeightsError
from harness.plan.identity import starting_content
from harness.plan.specs import ComponentSpec, TrialSpec
from harness.protocols import StartsFromFiles
from harness.registry import BACKBONES, CORPORA


def fetch_sources(specs: Iterable[TrialSpec], data: Path) -> None:
    """Download what is absent and verify what is there, each corpus and each backbone's weights once.

    Raises: CorpusError; WeightsError, which is one.
    """
    specs = list(specs)
    for corpus in {str(spec.corpus): spec.corpus for spec in specs}.values():
        CORPORA.get(corpus.name)(**corpus.params).fetch(data)
    for backbone in {str(spec.backbone): spec.backbone for spec in specs}.values():
        fetch_weights(backbone)


def fetch_weights(backbone: ComponentSpec) -> None:
    """The same for the weights that a backbone starts from, where it starts from any. Raises WeightsError."""
    cls = BACKBONES.get(backbone.name)
    if isinstance(cls, StartsFromFiles):
        try:
            with calling(f"backbone {backbone.name}", "fetch"):
                cls.fetch(**backbone.params)
        except (OSError, ValueError) as cause:
            raise WeightsError(str(cause)) from cause


def load_planned(spec: TrialSpec, data: Path, contents: dict[str, str]) -> Corpus:
    """A trial's corpus, where it runs; the weights of its backbone are there then, too.

    Args:
        contents: content that the plan was made with, by the text of the component; of others nothing is compared.
    Raises: CorpusError when the corpus or the weights cannot be had, or are not what the plan was made with.
    """
    source = CORPORA.get(spec.corpus.name)(**spec.corpus.params)
    corpus = source.load(data)
    _refuse_changed(spec.corpus, contents, lambda: source.facts().content)
    fetch_weights(spec.backbone)
    _refuse_changed(spec.backbone, contents, lambda: starting_content(spec.backbone, BACKBONES.get(spec.backbone.name)))
    return corpus


def _refuse_changed(component: ComponentSpec, contents: dict[str, str], content: Callable[[], str | None]) -> None:
    if (planned := contents.get(str(component))) is None:
        return
    try:
        found = content()
    except (OSError, ValueError) as cause:
        raise WeightsError(str(cause)) from cause
    if found != planned:
        raise CorpusError(f"{component} has changed since the trials were planned; run the command again")
