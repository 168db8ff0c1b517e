"""A module class of the tests' own: what tracing asks of modules is dicts of parameters, buffers and submodules."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpujit import ops


class Module:
    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)

    def __getattr__(self, name: str) -> Any:
        for items in ("_parameters", "_buffers", "_modules"):
            found = object.__getattribute__(self, items)
            if name in found:
                return found[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self._modules[name] = value
        elif name in self._buffers:
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def parameter(self, name: str, value: Any) -> None:
        self._parameters[name] = value

    def buffer(self, name: str, value: Any) -> None:
        self._buffers[name] = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


class Linear(Module):
    def __init__(self, n: int, m: int, seed: int = 0) -> None:
        super().__init__()
        r = np.random.default_rng(seed)
        self.parameter("weight", r.normal(size=(m, n)).astype(np.float32))
        self.parameter("bias", r.normal(size=m).astype(np.float32))

    def forward(self, x: Any) -> Any:
        return ops.linear(x, self.weight, self.bias)


class Counted(Module):
    """Adds a running mean that it updates, in place, and a counter that it replaces."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.buffer("running", np.zeros(n, np.float32))
        self.buffer("count", np.array(0))

    def forward(self, x: Any) -> Any:
        self.running *= np.float32(0.9)
        self.running += np.float32(0.1) * x.mean(axis=0)
        self.count = self.count + 1
        return x + self.running


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Linear(4, 6, 1)
        self.second = Linear(6, 4, 2)
        self.again = self.first

    def forward(self, x: Any) -> Any:
        y = ops.relu(self.first(x))
        z = self.second(y)
        return self.again(z) + y, x.shape[0] * z

    def encode(self, x: Any) -> Any:
        return self.first(x)


class Nested(Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.counted = Counted(6)
        self.scale = 2.0

    def forward(self, x: Any, pair: Any) -> Any:
        a, b = self.net(x)
        return {"a": self.counted(a) * self.scale, "b": b + pair[0] - pair[1]}
