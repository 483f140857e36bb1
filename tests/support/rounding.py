"""How far apart rounding may leave float64 numbers that are computed in two ways."""

EPSILON = 2.0**-52


def bound(n: float, magnitude: float = 1.0) -> float:
    """8 n eps magnitude: the largest difference between two computations of one number that is still rounding.

    Summed in any order, n terms are off by at most n eps times the sum of their magnitudes. Two computations are off
    from each other by twice that. The remaining factor 4 is for functions (exp, log, tanh, ...), which are off by a few
    eps, and not by the same in every library.

    Args:
        n: the terms of the longest sum, and the other roundings on the way to the number.
        magnitude: the sum of the magnitudes of the terms, at its largest; of a problem with a condition (least squares,
            a sum whose terms cancel), times the condition.
    """
    return 8 * n * EPSILON * magnitude
