"""The diagnostics there are. A new one is a module of this package with a DIAGNOSTIC, and its line here."""

from harness.diagnostics import calibrated, gates, gradients, jacobian, spectrum, unargmaxable, word_pairs
from harness.diagnostics.diagnostic import Diagnostic
from harness.errors import ExecutionError, nearest

DIAGNOSTICS: dict[str, Diagnostic] = {
    each.DIAGNOSTIC.name: each.DIAGNOSTIC
    for each in (spectrum, gates, gradients, jacobian, calibrated, word_pairs, unargmaxable)
}


def chosen(names: tuple[str, ...]) -> list[Diagnostic]:
    """The diagnostics of some names, in the order of the catalogue; all of them for (). Raises ExecutionError for a
    name that is not known.
    """
    for name in names:
        if name not in DIAGNOSTICS:
            known = f"{nearest(name, list(DIAGNOSTICS))} (there are: {', '.join(DIAGNOSTICS)})"
            raise ExecutionError(f"there is no diagnostic '{name}'{known}")
    return [each for name, each in DIAGNOSTICS.items() if not names or name in names]
