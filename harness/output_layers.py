"""The two layers that most heads consist of, the map to a facet and the output layer, and how they are initialised.

Heads import these functions from harness.distributions. Shape letters: see harness/protocols.py.
"""

import torch
from torch import nn

from harness.protocols import HeadDims
from harness.random_streams import substream


def facet_map(dims: HeadDims, *, projection: bool, width: int | None = None) -> nn.Module:
    """Return the layer that makes the one facet of a single softmax: f = U h + a with `projection`, else
    f = h; U has the shape (E, D).

    Args:
        width: E; None for the width of the backbone's embedding.
    Raises: ValueError when D differs from E and there is no projection.
    """
    d_top, width = dims.layer_dims[-1], dims.d_embed if width is None else width
    if d_top != width and not projection:
        raise ValueError(
            f"projection: the top layer has width {d_top}, the output embedding {width}; set projection to true"
        )
    return nn.Linear(d_top, width) if projection else nn.Identity()


def output_width(dims: HeadDims, d_embed: int | None, *, tie_weights: bool) -> int:
    """Return E, the width of a head's output embedding: `d_embed`, or if it is None the width of the backbone's.

    Raises: ValueError when d_embed < 1, or weights are tied and the width differs from the embedding's.
    """
    width = dims.d_embed if d_embed is None else d_embed
    if width < 1:
        raise ValueError(f"d_embed must be at least 1, got {width}")
    if tie_weights and width != dims.d_embed:
        raise ValueError(f"tie_weights: the embedding has width {dims.d_embed}, d_embed is {width}; they must be equal")
    return width


def output_layer(
    dims: HeadDims, embedding: nn.Embedding, *, bias: bool, tie_weights: bool, width: int | None = None
) -> nn.Linear:
    """Return the output layer: matrix W (V, E) and bias b (V,). With `tie_weights` W is the backbone's input embedding.

    An own W is Xavier-uniform, and b has the default of torch's Linear, U(-1/sqrt(E), 1/sqrt(E)). Both are drawn from a
    stream of their own, 'output': under one seed all heads start with the same W and b if V and E are the same. The
    other draws of a head do not depend on the output layer.

    Args:
        width: E; None for the width of the backbone's embedding.
    """
    with substream("output"):
        output = nn.Linear(dims.d_embed if width is None else width, dims.vocab_size, bias=bias)
    with substream("output"):  # from its start, so that W is the same with and without b
        nn.init.xavier_uniform_(output.weight)
    if tie_weights:
        output.weight = embedding.weight
    return output


def xavier_uniform_(*layers: nn.Module | None) -> None:
    """Initialise the matrices of linear layers, in the given order, by torch's Xavier-uniform rule.

    For the layers of a head except its output layer, which `output_layer` initialises. Modules without a matrix are
    left out, as is None. Biases keep the default of torch's Linear. A head calls this as the last step of its
    constructor, because the order of random draws decides the initial weights.
    """
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


def uniform_output_(output: nn.Linear, init_range: float | None, init_bias: str = "zero") -> None:
    """Initialise an output layer by the options of a head: W is U(-r, r), r = `init_range`; without it nothing is done.

    If W is tied, this sets the embedding. The draws are from the stream of `output_layer`, so W and b are the same
    under all heads of one seed, V, E and r, tied or not. A head calls this after every other initialisation.

    Args:
        init_bias: 'uniform' for b in U(-r, r); else b is 0.
    Raises: ValueError when init_range <= 0, or b is to be uniform and there is no init_range or no b.
    """
    if init_bias == "uniform" and (init_range is None or output.bias is None):
        raise ValueError("init_bias: 'uniform' needs an init_range, and a head with a bias")
    if init_range is None:
        return
    if init_range <= 0:
        raise ValueError(f"init_range must be more than 0, got {init_range}")
    with substream("output"):
        nn.init.uniform_(output.weight, -init_range, init_range)
        if init_bias == "uniform":
            nn.init.uniform_(output.bias, -init_range, init_range)
        elif output.bias is not None:
            nn.init.zeros_(output.bias)


def start_as_embedding_(
    embedding: nn.Embedding, facet: nn.Module, output: nn.Linear, init_range: float | None = None
) -> None:
    """Initialise a head so that it computes what a pretrained model with tied weights computes.

    W becomes a copy of the input embedding, the facet layer becomes the identity, and biases become zero. A head calls
    this as the last step of its constructor.

    Args:
        init_range: the option of the head; it contradicts this start.
    Raises: ValueError when the facet layer's input and output, or W and the embedding, have different widths, or
        init_range is given.
    """
    if init_range is not None:
        raise ValueError("init_range: start 'embedding' makes W a copy of the input embedding; give one of the two")
    if output.in_features != embedding.embedding_dim:
        widths = f"{embedding.embedding_dim}, the output matrix {output.in_features}"
        raise ValueError(f"start: 'embedding' copies the input embedding, which has width {widths}")
    with torch.no_grad():
        if isinstance(facet, nn.Linear):
            if facet.in_features != facet.out_features:
                widths = f"{facet.in_features} to {facet.out_features}"
                raise ValueError(
                    f"start: 'embedding' needs a top layer of the width of the embedding, the projection maps {widths}"
                )
            nn.init.eye_(facet.weight)
            nn.init.zeros_(facet.bias)
        output.weight.copy_(embedding.weight)
        if output.bias is not None:
            nn.init.zeros_(output.bias)
