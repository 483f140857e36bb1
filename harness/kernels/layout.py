"""Which facets score which words."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from harness.kernels import devices


@dataclass(frozen=True, slots=True)
class Slice:
    """Facets first .. last - 1 score the words x with x mod step = start, which are the rows start::step of W (a
    view).
    """

    first: int
    last: int
    start: int = 0
    step: int = 1

    @property
    def facets(self) -> slice:
        """The indices of the facets."""
        return slice(self.first, self.last)

    @property
    def words(self) -> slice:
        """The rows of the output matrix."""
        return slice(self.start, None, self.step)


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices of a mixture whose component k has partitions[k] facets.

    Neighbouring components of one facet share a slice and are computed in one product. A component of P > 1 facets has
    P slices.
    """

    partitions: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether every component has one facet."""
        return max(self.partitions) == 1

    @property
    def slices(self) -> list[Slice]:
        """The slices, in the order of their facets."""
        found: list[Slice] = []
        first = 0
        for num_partitions in self.partitions:
            last = first + num_partitions
            if num_partitions == 1 and found and found[-1].step == 1:
                found[-1] = Slice(found[-1].first, last)
            else:
                found += [Slice(first + p, first + p + 1, p, num_partitions) for p in range(num_partitions)]
            first = last
        return found

    @property
    def component(self) -> tuple[int, ...]:
        """(F,) the component of each facet."""
        return tuple(k for k, num_partitions in enumerate(self.partitions) for _ in range(num_partitions))

    def owners(self, targets_n: Tensor) -> Tensor:
        """(n, K): the facet of each component that scores the target."""
        # tensors without content must not stay in the cache
        numbers = _facet_numbers.__wrapped__ if devices.in_sizes_only() else _facet_numbers
        first_K, count_K = numbers(self.partitions, targets_n.device)
        return first_K + targets_n[:, None] % count_K


@lru_cache(maxsize=64)
def _facet_numbers(partitions: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """(K,) the first facet and (K,) the number of facets of each component.

    They are cached because a CUDA graph allows no copy from the host.
    """
    count_K = torch.tensor(partitions, device=device)
    return count_K.cumsum(0) - count_K, count_K
