"""Context managers of torch as scripted code knows them, without torch: they switch what gpujit has not."""

from __future__ import annotations

from typing import Any

from gpujit import ops  # the module that scripted code names below


class no_grad:  # noqa: N801  # torch's name
    """``with torch.no_grad():``."""

    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = ops.is_grad_enabled()
        ops.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        ops.set_grad_enabled(self.prev)


class enable_grad:  # noqa: N801
    """``with torch.enable_grad():``."""

    def __init__(self) -> None:
        self.prev = False

    def __enter__(self) -> None:
        self.prev = ops.is_grad_enabled()
        ops.set_grad_enabled(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        ops.set_grad_enabled(self.prev)


class inference_mode:  # noqa: N801
    """``with torch.inference_mode():``."""

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class record_function:  # noqa: N801
    """``with torch.profiler.record_function(name):``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class strict_fusion:  # noqa: N801
    """``with torch.jit.strict_fusion():``; what is fused, ``explain`` says."""

    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class autocast:  # noqa: N801
    """``with torch.autocast(device_type, dtype):``; passes.autocast knows the class by its name."""

    _gpujit_module = "torch.amp.autocast_mode"

    def __init__(
        self,
        device_type: str,
        dtype: int | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.fast_dtype = ops.get_autocast_dtype(device_type) if dtype is None else dtype
        self._enabled = enabled
        self.device = device_type

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class _OfCUDA:
    """``with torch.cuda.amp.autocast():``."""

    _gpujit_module = "torch.cuda.amp.autocast_mode"

    def __init__(self, enabled: bool = True, dtype: int = 5, cache_enabled: bool = True) -> None:
        self._enabled = enabled
        self.device = "cuda"
        self.fast_dtype = dtype

    def __enter__(self) -> _OfCUDA:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


class _OfCPU:
    """``with torch.cpu.amp.autocast():``."""

    _gpujit_module = "torch.cpu.amp.autocast_mode"

    def __init__(self, enabled: bool = True, dtype: int = 15, cache_enabled: bool = True) -> None:
        self._enabled = enabled
        self.device = "cpu"
        self.fast_dtype = dtype

    def __enter__(self) -> _OfCPU:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


# Saved under the name that PyTorch looks for.
_OfCUDA.__name__ = _OfCPU.__name__ = autocast.__name__

# By the names torch gives them, both where they are reached and where they are defined.
BY_PATH: dict[str, type] = {
    "no_grad": no_grad, "autograd.grad_mode.no_grad": no_grad, "enable_grad": enable_grad,
    "autograd.grad_mode.enable_grad": enable_grad, "inference_mode": inference_mode,
    "autograd.grad_mode.inference_mode": inference_mode, "profiler.record_function": record_function,
    "autograd.profiler.record_function": record_function, "jit.strict_fusion": strict_fusion,
    "autocast": autocast, "amp.autocast": autocast, "amp.autocast_mode.autocast": autocast,
    "cuda.amp.autocast": _OfCUDA, "cuda.amp.autocast_mode.autocast": _OfCUDA, "cpu.amp.autocast": _OfCPU,
    "cpu.amp.autocast_mode.autocast": _OfCPU,
}  # fmt: skip
