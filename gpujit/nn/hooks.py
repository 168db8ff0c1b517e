"""Hooks of modules: handles that remove them, and calls that go through them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

from gpujit.support.errors import ArgumentError

if TYPE_CHECKING:
    from gpujit.nn.module import Module

Hook = Callable[..., Any]
Caller = Callable[["Module", tuple[Any, ...], dict[str, Any]], Any]
_CALLER: ContextVar[Caller | None] = ContextVar("gpujit.nn caller", default=None)
_IDS = count()


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """While it lasts, calls of modules in this thread go to ``caller(module, args, kwargs)``, which gives their result.

    It may call ``run(module, args, kwargs)``, which does what the call would have done.
    """
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``module(*args, **kwargs)`` gives."""
    caller = _CALLER.get()
    return run(module, args, kwargs) if caller is None else caller(module, args, kwargs)


class RemovableHandle:
    """What registering a hook gives: ``remove()`` takes the hook away, and so does leaving a ``with`` block."""

    def __init__(self, *tables: MutableMapping[int, Any]) -> None:
        self.id = next(_IDS)
        self._tables = tables

    def remove(self) -> None:
        """Take the hook away; again has no effect."""
        for table in self._tables:
            table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add(
    hooks: OrderedDict[int, Hook], hook: Hook, prepend: bool, *flags: tuple[bool, dict[int, bool]]
) -> RemovableHandle:
    """The handle of a hook now in an ordered table; ``flags`` are (asked for, table of the hooks that ask) pairs."""
    if not callable(hook):
        raise ArgumentError(f"a hook is a function, found a {type(hook).__name__}")
    handle = RemovableHandle(hooks, *(table for _, table in flags))
    hooks[handle.id] = hook
    for asked, table in flags:
        if asked:
            table[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def run(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``forward`` with the hooks before and after it."""
    d = module.__dict__
    before, after = d["_forward_pre_hooks"], d["_forward_hooks"]
    if not before and not after:
        return module.forward(*args, **kwargs)
    done: set[int] = set()
    try:
        return _run(module, args, kwargs, done)
    except Exception:
        # Hooks that asked to be called always are called with no result, once; what they raise hides nothing.
        for key in [k for k in after if k in d["_forward_hooks_always_called"] and k not in done]:
            try:
                _after(module, key, args, kwargs, None)
            except Exception:
                continue
        raise


def _run(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], done: set[int]) -> Any:
    d = module.__dict__
    for key, hook in list(d["_forward_pre_hooks"].items()):
        if key in d["_forward_pre_hooks_with_kwargs"]:
            changed = hook(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise ArgumentError(f"a pre-hook with kwargs returns None or (args, kwargs), found {changed!r}")
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for key in list(d["_forward_hooks"]):
        done.add(key)
        changed = _after(module, key, args, kwargs, result)
        if changed is not None:
            result = changed
    return result


def _after(module: Module, key: int, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    hook = module._forward_hooks[key]
    if key in module._forward_hooks_with_kwargs:
        return hook(module, args, kwargs, result)
    return hook(module, args, result)
