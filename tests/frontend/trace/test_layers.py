"""Every layer of gpujit.nn, traced, computes what the layer computes, and its weights are attributes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gpujit
import gpujit.nn as nn
from gpujit.frontend.trace.check import difference
from gpujit.frontend.trace.report import NOTES
from gpujit.ir.verify import verify
from gpujit.support.errors import TracerWarning
from tests.nn.cases import CASES

# What these layers decide by numbers and sizes, they decide in PyTorch's traces as well.
LOST = {
    "BatchNorm2d-cumulative": {"number"},
    "CrossMapLRN2d": {"branch", "loop", "size"},
    "CrossMapLRN2d-even": {"branch", "loop", "size"},
    "CrossMapLRN2d-wide": {"branch", "loop", "size"},
    "FractionalMaxPool3d": {"number"},
    "GaussianNLLLoss": {"branch"},
    "GaussianNLLLoss-full": {"branch"},
    "LocalResponseNorm": {"branch"},
    "LocalResponseNorm-even": {"branch"},
    "MultiheadAttention-no-weights": {"branch"},
    "ReLU-inplace": {"input-write"},
    "SiLU-inplace": {"input-write"},
    "TransformerDecoder": {"branch"},
    "TransformerEncoderLayer-gelu": {"branch"},
    "TransformerEncoder": {"branch"},
    "Upsample-recompute": {"number", "size"},
}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_traced_layer_computes_what_the_layer_does(case):
    layer = case.build(nn).train(case.training)
    kwargs = {k: v for k, v in case.kwargs.items() if isinstance(v, np.ndarray)}
    fixed = {k: v for k, v in case.kwargs.items() if k not in kwargs}
    model = Fixed(layer, fixed).train(case.training) if fixed else layer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        traced = gpujit.trace(model, case.inputs, example_kwarg_inputs=kwargs)
        for module in traced.modules():
            for method in module.methods.values():
                verify(method.graph)
        names = [n for n, _ in traced.named_parameters()]
        assert names == [n for n, _ in model.named_parameters()]
        lost = {d.kind for d in traced.trace_report if d.kind not in (*NOTES, "container")}
        assert lost == LOST.get(case.name, set()), traced.trace_report
        gpujit.manual_seed(3)
        expected = model(*case.inputs, **kwargs)
        gpujit.manual_seed(3)
        if case.seeded or not case.training:
            assert not difference(traced(*case.inputs, **kwargs), expected, case.tolerance)


class Fixed(nn.Module):
    """A layer with arguments that are no tensors."""

    def __init__(self, layer, fixed):
        super().__init__()
        self.layer, self.fixed = layer, fixed

    def forward(self, *args, **kwargs):
        return self.layer(*args, **kwargs, **self.fixed)
