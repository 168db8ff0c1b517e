"""All native steps that operators have templates for."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir.graph import Node, Value
from gpujit.static_runtime.attentions import native_attention
from gpujit.static_runtime.convolutions import native_convolution
from gpujit.static_runtime.native import Made, Maker
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.pools import native_pooling
from gpujit.static_runtime.products import native_product

MAKERS: tuple[Maker, ...] = (native_product, native_convolution, native_pooling, native_attention)


def native_step(node: Node, place_of: Callable[[Value], Place | None], result: Place) -> Made | None:
    """The native step of the first template that has one for a node; None when none has."""
    return next((made for make in MAKERS if (made := make(node, place_of, result)) is not None), None)
