"""Filters of a signal as native steps: a convolution of one channel is a product whose rows are overlapping frames."""

from __future__ import annotations

from collections.abc import Callable

from gpujit.ir.dtypes import FLOAT32
from gpujit.ir.graph import Node, Value
from gpujit.kernels.templates.choice import Choose, quickest
from gpujit.kernels.templates.epilogue import Epilogue
from gpujit.kernels.templates.gemm import Gemm, bind, plan
from gpujit.passes.nodes import known
from gpujit.static_runtime.native import Made, of_template
from gpujit.static_runtime.places import Place
from gpujit.static_runtime.products import packed_matrix
from gpujit.support.errors import ArgumentError, InternalError

# Short filters, and few, are done by the convolution's own templates.
LEAST_TAPS, LEAST_FILTERS = 16, 16


def native_frames(
    node: Node, place_of: Callable[[Value], Place | None], result: Place, choose: Choose = quickest
) -> Made | None:
    """The native step of a float32 ``conv1d`` of one channel with long constant filters; None for others."""
    if node.schema is None or node.schema.full_name != "aten::conv1d" or result.dtype != FLOAT32:
        return None
    x, weights, bias, *numbers, groups = node.inputs
    lists = [known(v) for v in numbers]
    if not all(isinstance(n, list) and len(n) == 1 and type(n[0]) is int for n in lists) or known(groups) != 1:
        return None
    (stride,), (padding,), (dilation,) = lists
    place = place_of(x)
    if padding != 0 or not weights.is_constant or not bias.is_constant or place is None or place.dtype != FLOAT32:
        return None
    w, b = weights.constant(), bias.constant()
    if place.steps is None or len(place.shape) != 3 or w.ndim != 3 or place.shape[1] != 1 or w.shape[1] != 1:
        return None
    if w.dtype != FLOAT32 or (b is not None and (b.dtype != FLOAT32 or b.shape != w.shape[:1])):
        return None
    filters, _, taps = w.shape
    images, _, length = place.shape
    pixels = (length - dilation * (taps - 1) - 1) // stride + 1
    if taps < LEAST_TAPS or filters < LEAST_FILTERS or result.shape != (images, filters, pixels):
        return None
    image, _, step = place.steps
    out = (filters * pixels, 0, 1, pixels)
    described = Gemm(
        pixels, filters, taps, (image, 0, stride * step, dilation * step), out, r=out, batch=images,
        epilogue=Epilogue(bias=b is not None),
    )  # fmt: skip
    matrix = w[:, 0].T
    try:
        spec = plan(described, choose=choose)
        bound = bind(described, matrix, b, packed_matrix(w, matrix, spec.tile), spec=spec)
    except (ArgumentError, InternalError):
        return None
    return of_template(bound), [x]
