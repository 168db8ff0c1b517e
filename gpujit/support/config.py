"""Switches: what a developer may turn on or off, each declared once with its variable, default and meaning.

``config.check_types`` is a switch's value, ``with config(check_types=True):`` changes it inside a block, in the running
thread alone. The environment is read once, on import.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any

_OFF = ("", "0", "false", "no", "off")


def _switch(variable: str, default: bool, help: str) -> Any:
    return field(default=default, metadata={"variable": variable, "help": help})


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of all switches."""

    check_types: bool = _switch(
        "GPUJIT_CHECK_TYPES", False, "compare what every operator returns with the type inferred for it"
    )


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that environment variables ask for."""
    values = {
        f.name: environment[f.metadata["variable"]].strip().lower() not in _OFF
        for f in fields(Settings)
        if f.metadata["variable"] in environment
    }
    return Settings(**values)


_started: Settings = from_environment(os.environ)
_current: ContextVar[Settings] = ContextVar("gpujit_settings", default=_started)


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
        return [{"name": f.name, **f.metadata, "value": getattr(current, f.name)} for f in fields(Settings)]

    def describe(self) -> str:
        """A line for each switch: variable, value, meaning."""
        return "\n".join(f"{s['variable']}={int(s['value'])}  {s['help']}" for s in self.switches())


config = Config()
