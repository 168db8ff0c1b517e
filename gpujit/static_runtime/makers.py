"""All native steps that operators have templates for."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.static_runtime.assemblies import native_assembly
from gpujit.static_runtime.attentions import native_attention
from gpujit.static_runtime.convolutions import native_convolution
from gpujit.static_runtime.endings import NO_ENDING, Ending
from gpujit.static_runtime.frames import native_frames
from gpujit.static_runtime.native import Made, Maker
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.pools import native_pooling
from gpujit.static_runtime.products import native_product
from gpujit.static_runtime.recurrent import native_recurrent
from gpujit.static_runtime.starts import Start

# All but that of assemblies, whose code is the same for all sizes.
MAKERS: tuple[Maker, ...] = (
    native_product,
    native_frames,
    native_convolution,
    native_pooling,
    native_attention,
    native_recurrent,
)
# Those whose templates can do more to their sums, and make an operand themselves.
ENDED = (native_product, native_convolution)


def native_step(
    node: Node,
    place_of: Callable[[Value], Place | None],
    result: Place,
    ending: Ending = NO_ENDING,
    start: Start | None = None,
    weights: str = "float32",
    choose: Choose = quickest,
) -> Made | None:
    """The native step of the first template that has one for a node and what is done at its end; None when none has.

    With a start the step makes that tensor itself. ``weights``: what constant matrices are kept as, see Options.
    ``choose``: which code, of that which gives the same numbers. Raises ArgumentError, InternalError with the reason
    why it cannot make it.
    """
    if 0 in result.shape:
        # There is nothing to compute, and whether the arguments are taken is for the operator to say.
        return None
    if weights != "float32":
        made = native_product(node, place_of, result, ending, start, weights, choose)
        if made is not None:
            return made
    if ending == NO_ENDING and start is None:
        found = (make(node, place_of, result, choose=choose) for make in MAKERS)
        return next((made for made in found if made is not None), None) or native_assembly(node, place_of, result)
    found = (make(node, place_of, result, ending, start, choose=choose) for make in ENDED)
    return next((made for made in found if made is not None), None)
