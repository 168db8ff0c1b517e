"""All steps on a GPU that operators have: calls of libraries, kernels of their own, and tile programs."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir.graph import Node
from gpujit.static_runtime.device_attentions import device_attention
from gpujit.static_runtime.device_bags import device_bags
from gpujit.static_runtime.device_convolutions import device_convolution
from gpujit.static_runtime.device_libraries import Asked
from gpujit.static_runtime.device_moves import device_move
from gpujit.static_runtime.device_pools import device_pooling
from gpujit.static_runtime.device_products import device_product
from gpujit.static_runtime.device_puts import device_put
from gpujit.static_runtime.device_recurrent import device_recurrent
from gpujit.static_runtime.device_scatters import device_scatter
from gpujit.static_runtime.device_sorts import device_sort
from gpujit.static_runtime.device_tiles import MadeStep, PlaceOf, single_step
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.places import Place

# Those that do nothing to their result in the end.
MAKERS: tuple[Callable[[Node, PlaceOf, Place], MadeStep | None], ...] = (
    device_pooling,
    device_recurrent,
    device_move,
    device_put,
    device_scatter,
    device_bags,
    device_sort,
    single_step,
)


def device_step(
    node: Node, place_of: PlaceOf, result: Place, ending: Ending = NO_ENDING, asked: Asked | None = None
) -> MadeStep | None:
    """The step of a node that does ``ending`` to its result, and the tensors it reads in order; None for others.

    Addresses of operands, then of all the node's outputs, are those of their places' roots.
    Args:
        result: the place of the first output; ``place_of`` knows the others.
        asked: the library for convolutions and attention, which may be asked once; None for none.
    """
    found = device_product(node, place_of, result, ending)
    if found is None:
        found = device_convolution(node, place_of, result, ending, asked)
    if found is not None or ending != NO_ENDING:
        return found
    found = device_attention(node, place_of, result, asked)
    if found is not None:
        return found
    return next((made for make in MAKERS if (made := make(node, place_of, result)) is not None), None)
