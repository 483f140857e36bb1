"""A fit of costs by context length: c0 + c1 T + c2 T^2, no coefficient below 0."""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from harness.errors import ExecutionError


class Quadratic(BaseModel):
    """c0 + c1 T + c2 T^2.

    Args:
        deviation: the largest relative difference between a value and the fit.
    """

    model_config = ConfigDict(frozen=True)
    constant: float
    linear: float
    quadratic: float
    deviation: float

    def at(self, length: float) -> float:
        """The cost at a context length."""
        return self.constant + self.linear * length + self.quadratic * length**2

    @property
    def crossing(self) -> float | None:
        """c1 / c2: the length at which the quadratic part is as large as the linear one; None without quadratic part.

        From here on, doubling the length more than triples the two parts together.
        """
        return self.linear / self.quadratic if self.quadratic > 0 else None


def fitted(lengths: Sequence[int], values: Sequence[float]) -> Quadratic:
    """Fit by non-negative least squares of the relative differences: sum over T of ((fit(T) - value) / value)^2.

    Absolute differences would be those of the longest contexts only, whose costs are hundreds of times as large.

    Raises: ExecutionError for fewer than three different lengths, or a value that is not above 0.
    """
    from scipy.optimize import nnls  # here: it takes a second to import

    if len(set(lengths)) < 3:
        raise ExecutionError(f"a quadratic fit needs at least 3 context lengths, got {len(set(lengths))}")
    if min(values) <= 0:
        raise ExecutionError(f"a quadratic fit needs values above 0, got {min(values)}")
    T, y = np.array(lengths, dtype=float), np.array(values, dtype=float)
    columns = np.stack([T**power for power in range(3)], axis=1) / y[:, None]
    sizes = np.linalg.norm(columns, axis=0)
    scaled, _ = nnls(columns / sizes, np.ones(len(y)))
    constant, linear, quadratic = (scaled / sizes).tolist()
    deviation = float(np.abs(columns @ (scaled / sizes) - 1).max())
    return Quadratic(constant=constant, linear=linear, quadratic=quadratic, deviation=deviation)
