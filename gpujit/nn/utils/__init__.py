"""What is not a layer: sequences of unequal length (``rnn``), and batch norm folded into other layers (``fusion``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_MODULES = ("fusion", "rnn")
_FUSIONS = ("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights")

if TYPE_CHECKING:
    from gpujit.nn.utils import fusion, rnn
    from gpujit.nn.utils.fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"gpujit.nn.utils.{name}")
    if name in _FUSIONS:
        return getattr(import_module("gpujit.nn.utils.fusion"), name)
    raise AttributeError(f"gpujit.nn.utils has nothing named {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_FUSIONS})
