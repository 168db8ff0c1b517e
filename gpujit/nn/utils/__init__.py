"""What is not a layer: sequences of unequal length (``rnn``), batch norm folded into other layers (``fusion``), arrays
that are computed from others (``parametrize``, ``parametrizations``, and the older ``norms``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_MODULES = ("fusion", "init", "norms", "parametrizations", "parametrize", "rnn", "stateless", "vectors")
_FUNCTIONS = {
    "fusion": ("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"),
    "init": ("skip_init",),
    "norms": ("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"),
    "vectors": ("parameters_to_vector", "vector_to_parameters"),
}
_HOMES = {name: module for module, names in _FUNCTIONS.items() for name in names}

if TYPE_CHECKING:
    from gpujit.nn.utils import fusion, init, norms, parametrizations, parametrize, rnn, stateless, vectors
    from gpujit.nn.utils.fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )
    from gpujit.nn.utils.init import skip_init
    from gpujit.nn.utils.norms import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
    from gpujit.nn.utils.vectors import parameters_to_vector, vector_to_parameters


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"gpujit.nn.utils.{name}")
    if name in _HOMES:
        return getattr(import_module(f"gpujit.nn.utils.{_HOMES[name]}"), name)
    raise AttributeError(f"gpujit.nn.utils has nothing named {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOMES})
