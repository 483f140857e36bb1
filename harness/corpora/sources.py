"""The sources that trials name, made ready before any of them starts."""

from collections.abc import Iterable
from pathlib import Path

from harness.plan.specs import TrialSpec
from harness.registry import CORPORA


def fetch_corpora(specs: Iterable[TrialSpec], data: Path) -> None:
    """Download what is absent and verify what is there, each corpus once. Raises CorpusError."""
    for corpus in {str(spec.corpus): spec.corpus for spec in specs}.values():
        CORPORA.get(corpus.name)(**corpus.params).fetch(data)
