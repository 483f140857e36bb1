"""The calibration of a trained head: does it know how often its most probable word is right?"""

from harness.diagnostics.diagnostic import Amount, Diagnostic, Figure, NotDefined, Result, Settings
from harness.errors import ExecutionError
from harness.training.evaluation import calibration
from harness.trial.trained import Trained

MEASURED = ("test_calibration_error", "test_entropy")


class Calibration(Result):
    """The result of the diagnostic: the expected calibration error, and the mean entropy in nats, of the test split."""

    error: Amount
    entropy: Amount


def compute(subject: Trained, settings: Settings) -> Calibration:
    """Compute both as `measure: {calibration: true}` does, or take them from the record if they were measured. Raises
    NotDefined when the head's distribution has no `statistics`.
    """
    metrics = subject.record.metrics
    if not metrics.keys() >= set(MEASURED):
        try:
            metrics = calibration(subject.model, subject.corpus, subject.spec.train.evaluation)
        except ExecutionError as cause:
            raise NotDefined(
                f"{subject.model.head_name} returns a distribution without statistics, which its calibration needs"
            ) from cause
    error, entropy = (metrics[name] for name in MEASURED)
    return Calibration(error=error, entropy=entropy)


DIAGNOSTIC = Diagnostic(
    name="calibration",
    title="Calibration on the test split",
    module=__name__,
    settings=(),
    result=Calibration,
    compute=compute,
    figures=(
        Figure(name="calibration error", value=lambda each: each.error, digits=4, on_terminal=True),
        Figure(name="entropy", value=lambda each: each.entropy, digits=3, on_terminal=True),
    ),
    notes=(
        "calibration error: the expected one, in 15 bins of equal width (Guo et al., 2017). entropy: in nats, the mean "
        "over the scored tokens of the test split.",
    ),
)
