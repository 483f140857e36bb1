"""What trials name that is read from files, corpora and pretrained weights, made ready before any of them starts."""

from collections.abc import Iterable
from pathlib import Path

from harness.errors import WeightsError
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
            cls.fetch(**backbone.params)
        except (OSError, ValueError) as cause:
            raise WeightsError(str(cause)) from cause
