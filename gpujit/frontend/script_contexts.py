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


class autocast_off:  # noqa: N801
    """``with torch.autocast(device, enabled=False):``."""

    def __init__(self) -> None:
        pass

    def __enter__(self) -> autocast_off:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass


# Autocast by its names, and which argument switches it on.
AUTOCAST: dict[str | None, int] = {
    "autocast": 2, "amp.autocast": 2, "amp.autocast_mode.autocast": 2,
    "cuda.amp.autocast": 0, "cuda.amp.autocast_mode.autocast": 0, "cpu.amp.autocast": 0,
    "cpu.amp.autocast_mode.autocast": 0,
}  # fmt: skip

# By the names torch gives them, both where they are reached and where they are defined.
BY_PATH: dict[str, type] = {
    "no_grad": no_grad, "autograd.grad_mode.no_grad": no_grad, "enable_grad": enable_grad,
    "autograd.grad_mode.enable_grad": enable_grad, "inference_mode": inference_mode,
    "autograd.grad_mode.inference_mode": inference_mode, "profiler.record_function": record_function,
    "autograd.profiler.record_function": record_function, "jit.strict_fusion": strict_fusion,
}  # fmt: skip
