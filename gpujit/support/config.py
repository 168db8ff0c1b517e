"""Switches: what a developer may turn on or off, each declared once with its variable, default and meaning.

``config.check_types`` is a switch's value, ``with config(check_types=True):`` changes it inside a block, in the running
thread alone. The environment is read once, on import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpujit.support.errors import ArgumentError

_OFF = ("", "0", "false", "no", "off")


def _flag(text: str) -> bool:
    return text.strip().lower() not in _OFF


def _number(text: str) -> int | None:
    return int(text) if text.strip() else None


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bytes(text: str) -> int:
    """A size: ``1000``, ``64k``, ``256M``, ``1.5GB``. Raises ValueError."""
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    size = float(number.removesuffix(unit))
    # Also false for nan.
    if not 0 <= size < 1 << 40:
        raise ValueError(text)
    return int(size * _UNITS[unit])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _switch(variable: str, default: Any, help: str, read: Callable[[str], Any] = _flag) -> Any:
    return field(default=default, metadata={"variable": variable, "help": help, "read": read})


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of all switches."""

    check_types: bool = _switch(
        "GPUJIT_CHECK_TYPES", False, "compare what every operator returns with the type inferred for it"
    )
    verify: bool = _switch("GPUJIT_VERIFY", False, "check every graph after each pass")
    print_after: tuple[str, ...] = _switch(
        "GPUJIT_PRINT_AFTER", (), "print the graph to standard error after these passes, by name", _names
    )
    dump_dir: str = _switch(
        "GPUJIT_DUMP_DIR", "", "folder that gets the graph before a pipeline and after each pass that changed it", str
    )
    pass_limit: int | None = _switch(
        "GPUJIT_PASS_LIMIT", None, "stop changing graphs after so many changes, to find the one that is wrong", _number
    )
    simd_width: int | None = _switch(
        "GPUJIT_SIMD_WIDTH", None, "floats in a vector of CPU kernels (1, 4, 8, 16); by default the machine's", _number
    )
    check_kernels: bool = _switch(
        "GPUJIT_CHECK_KERNELS", False, "compare what every fused kernel computes with the NumPy renderer"
    )
    check_plan: bool = _switch(
        "GPUJIT_CHECK_PLAN", False, "look for overlaps in planned memory and poison what is free, on every run"
    )
    check_padding: bool = _switch(
        "GPUJIT_CHECK_PADDING", False, "compare the first results of each size padded to a bucket with those without"
    )
    disable: tuple[str, ...] = _switch(
        "GPUJIT_DISABLE",
        (),
        "parts to turn off, by name: fuser (all its kernels), fusion (kernels of several operators), static, workers, "
        "compile (kernels that are new), graphs, cudnn (on a GPU)",
        _names,
    )
    autotune: bool = _switch(
        "GPUJIT_AUTOTUNE", False, "measure several tiles for each new kernel and keep the fastest; takes seconds"
    )
    tf32: bool = _switch(
        "GPUJIT_TF32", False, "let products on a GPU round float32 numbers to TF32, which has 10 bits of fraction"
    )
    threads: int | None = _switch(
        "GPUJIT_THREADS", None, "threads of fused kernels and plans; by default what affinity and quota allow", _number
    )
    cache: bool = _switch("GPUJIT_CACHE", True, "keep compiled kernels on disk for later processes")
    cache_dir: str = _switch(
        "GPUJIT_CACHE_DIR", "", "folder of compiled kernels; by default gpujit in the user's cache folder", str
    )
    cache_limit: int = _switch(
        "GPUJIT_CACHE_LIMIT", 256 << 20, "bytes (or 64k, 256M, 1G) of compiled kernels that are kept on disk", _bytes
    )
    progress: bool = _switch("GPUJIT_PROGRESS", True, "show progress of commands that take over a second")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that environment variables ask for. Raises ArgumentError for a value that is none."""
    values = {}
    for f in fields(Settings):
        variable = f.metadata["variable"]
        if variable in environment:
            try:
                values[f.name] = f.metadata["read"](environment[variable])
            except ValueError:
                found = environment[variable]
                raise ArgumentError(f"{variable}={found!r} is no value for it: {f.metadata['help']}") from None
    return Settings(**values)


_started: Settings = from_environment(os.environ)
_current: ContextVar[Settings] = ContextVar("gpujit_settings", default=_started)


# The settings that hold here, for code that asks on every call.
current: Callable[[], Settings] = _current.get


class Overrides:
    """Settings that differ from those that hold by what ``change`` makes of them, for calls that are many and short.

    ``token = overrides.begin()``, and in a ``finally`` block ``overrides.end(token)``.
    """

    __slots__ = ("_change", "_known")

    def __init__(self, change: Callable[[Settings], Settings]) -> None:
        self._change = change
        self._known: tuple[Settings | None, Settings] = (None, _started)

    def begin(self) -> Token[Settings]:
        """Put them in place of those that hold in the running thread."""
        base = _current.get()
        known = self._known
        if known[0] is not base:
            known = self._known = (base, self._change(base))
        return _current.set(known[1])

    end = staticmethod(_current.reset)


class Config:
    """The switches as attributes; called with new values, a context manager in which they hold."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(_current.get(), name)

    @contextmanager
    def __call__(self, **changes: Any) -> Iterator[Settings]:
        """Other values inside a ``with`` block. Raises TypeError for a switch that there is not."""
        settings = replace(_current.get(), **changes)
        token = _current.set(settings)
        try:
            yield settings
        finally:
            _current.reset(token)

    def switches(self) -> list[dict[str, Any]]:
        """Every switch: name, environment variable, value and what it does."""
        current = _current.get()
        return [
            {"name": f.name, "variable": f.metadata["variable"], "help": f.metadata["help"]}
            | {"value": getattr(current, f.name)}
            for f in fields(Settings)
        ]

    def describe(self) -> str:
        """A line for each switch: variable, value, meaning."""
        return "\n".join(f"{s['variable']}={_text(s['value'])}  {s['help']}" for s in self.switches())


def _text(value: Any) -> str:
    """A value as one would write it into the environment."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


config = Config()
