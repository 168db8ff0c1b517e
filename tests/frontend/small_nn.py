"""As much of ``nn`` as the module snippets need where there is no torch: what a module is known by, and containers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from gpujit.frontend.python_names import TorchPath

functional = TorchPath("nn.functional")


class Parameter(np.ndarray):
    """An array that a module registers as a parameter."""

    def __new__(cls, data: Any) -> Parameter:
        return np.asarray(data).view(cls)


class Module:
    """Attributes sorted into parameters, buffers, submodules and the rest, as torch.nn.Module does."""

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
            object.__setattr__(self, name, OrderedDict())
        self.training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter) or name in self._parameters:
            self._parameters[name] = value
        elif isinstance(value, Module) or name in self._modules:
            self._modules[name] = value
        elif name in self._buffers:
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(table, {}):
                return self.__dict__[table][name]
        raise AttributeError(name)

    def register_buffer(self, name: str, value: Any) -> None:
        self._buffers[name] = value

    def register_parameter(self, name: str, value: Any) -> None:
        self._parameters[name] = value

    def named_parameters(self) -> Any:
        return iter(self._parameters.items())

    def register_forward_hook(self, hook: Any) -> None:
        self._forward_hooks[len(self._forward_hooks)] = hook

    def register_forward_pre_hook(self, hook: Any) -> None:
        self._forward_pre_hooks[len(self._forward_pre_hooks)] = hook

    def eval(self) -> Module:
        self.training = False
        for m in self._modules.values():
            m.eval()
        return self


class ModuleList(Module):
    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        for i, m in enumerate(modules):
            self._modules[str(i)] = m

    def __iter__(self) -> Any:
        return iter(self._modules.values())


class Sequential(Module):
    def __init__(self, *modules: Any) -> None:
        super().__init__()
        for i, m in enumerate(modules):
            self._modules[str(i)] = m

    def __iter__(self) -> Any:
        return iter(self._modules.values())

    def forward(self, input):  # type: ignore[no-untyped-def]
        for module in self:
            input = module(input)
        return input


class ModuleDict(Module):
    def __init__(self, modules: Any) -> None:
        super().__init__()
        self._modules.update(modules)


class ParameterList(Module):
    def __init__(self, values: Any) -> None:
        super().__init__()
        for i, v in enumerate(values):
            self._parameters[str(i)] = v


class Identity(Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x
