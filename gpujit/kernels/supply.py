"""Where a kernel comes from: this process has it, or the cache on disk, or it is compiled.

Equal nests share one kernel, whichever models they belong to. Code that is loaded stays for the life of the process, so
an address never goes stale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from gpujit.kernels import build, cache
from gpujit.kernels.cpu_nest import Nest
from gpujit.kernels.native import Library, compile_ir, host_key
from gpujit.kernels.promises import Counters, Promises
from gpujit.kernels.target import host
from gpujit.kernels.tile import Compute
from gpujit.support import background
from gpujit.support.config import config
from gpujit.support.errors import InternalError
from gpujit.support.forks import after_fork
from gpujit.support.progress import Stage


class NotCompiled(InternalError):
    """A kernel that is not at hand, where none may be compiled."""

    code = "not-compiled"

    def __init__(self) -> None:
        super().__init__("no kernel is at hand, and none may be compiled (compile='never' or GPUJIT_DISABLE=compile)")


counters = Counters()
# Characters of the first line of what a module stands for that are kept with it, to read.
HEADING = 200
# Addresses by the text of a nest.
_kernels: Promises[int] = Promises()
_loading = threading.Lock()
_libraries: list[Library] = []


@after_fork
def _after_fork() -> None:
    """Who held the lock in the parent is not here."""
    global _loading
    _loading = threading.Lock()


def symbol(key: str) -> str:
    """The function's name in the object file of a kernel."""
    return f"gpujit_{key[:32]}"


def address(nest: Nest) -> int:
    """The address of the nest's kernel. Raises NotRendered, InternalError."""
    found = _kernels.get(nest.key)
    if found is None:
        found = _ask([nest])[0]
    else:
        counters.shared += 1
    return found.result()


def prepare(nests: Iterable[Nest]) -> None:
    """Have the kernels of a plan ready, from one file, or compiled side by side. Those that cannot be are left out."""
    try:
        for found in _ask(list(nests)):
            found.exception()
    except InternalError as fault:
        # Whoever asks for one of them is told.
        cache.log.warning("kernels could not be made ready: %s", fault.message)


def module(text: str, render: Callable[[], str], optimise: int, part: str = "", label: str = "") -> Library:
    """The functions of a module of LLVM IR that ``text`` stands for, from disk or rendered and compiled.

    ``text`` must differ whenever the IR would, given the code in ``kernels`` and its folder ``part``. Unlike kernels of
    nests, it is loaded anew each time. ``label`` is what people are told while it is compiled. Raises
    NotRendered, InternalError.
    """
    key = _key_of_module(text, optimise, part)
    # Text with an address in memory says nothing about the code.
    store = None if " at 0x" in text else cache.store()
    image = None if store is None else store.get(key)
    if image is not None:
        try:
            found = Library(image)
        except InternalError as fault:
            cache.log.warning("code from the cache is compiled again: %s", fault.message)
        else:
            counters.loaded += 1
            return found
    _allow()
    with Stage("compile") as stage:
        stage.note = f"{label or text.splitlines()[0][:HEADING]} for {host().cpu}"
        source = render()
        image = compile_ir([source], optimise)
    counters.compiled += 1
    if store is not None:
        store.put(key, image, f"; {text.splitlines()[0][:HEADING]}\n{source}")
    return Library(image)


def is_kept(text: str, optimise: int, part: str = "") -> bool:
    """Whether the cache on disk has what ``module`` would compile, damaged or not."""
    store = None if " at 0x" in text else cache.store()
    return store is not None and store.has(_key_of_module(text, optimise, part))


def _key_of_module(text: str, optimise: int, part: str) -> str:
    return cache.key_of(f"module {optimise}\n{text}", host_key(), part)


def _allow() -> None:
    """Raises NotCompiled where nothing may be compiled, Stopped where nothing is to be."""
    if "compile" in config.disable:
        raise NotCompiled
    background.checkpoint()


def _ask(nests: Sequence[Nest]) -> list[Future[int]]:
    """The kernels of all nests; returns when those that nobody had are made."""
    wanted = {nest.key: nest for nest in nests}
    with _kernels.ask(wanted) as (found, mine):
        counters.shared += len(found) - len(mine)
        if mine:
            _make(wanted, mine)
    return [found[nest.key] for nest in nests]


def _make(wanted: dict[str, Nest], mine: dict[str, Future[int]]) -> None:
    """Fulfil what this thread has promised. ``wanted`` are all kernels of the plan, by which its pack is named."""
    host = host_key()
    keys = {text: cache.key_of(text, host) for text in wanted}
    store = cache.store()
    packed: dict[str, bytes] = {}
    stored: dict[str, bytes] = {}
    if store is not None:
        packed = store.get_pack(list(keys.values())) if len(wanted) > 1 else {}
        for text in mine:
            image = packed.get(keys[text]) or store.get(keys[text])
            if image is not None:
                stored[text] = image
    if stored:
        try:
            _load(stored, keys, mine)
            counters.loaded += len(stored)
        except InternalError as fault:
            # As it was written, but this process cannot use it.
            cache.log.warning("kernels from the cache are compiled again: %s", fault.message)
            stored = {}
    missing = [text for text in mine if text not in stored]
    if missing and "compile" in config.disable:
        for text in missing:
            _kernels.refuse(text, mine[text], NotCompiled())
        return
    background.checkpoint()
    with _compiling([wanted[text] for text in missing], len(stored)):
        built = build.build_all([wanted[text] for text in missing], [symbol(keys[text]) for text in missing])
    images: dict[str, bytes] = {}
    for text, result in zip(missing, built, strict=True):
        if isinstance(result, InternalError):
            counters.refused += 1
            _kernels.refuse(text, mine[text], result)
            continue
        images[text] = result.image
        if store is not None:
            store.put(keys[text], result.image, result.source)
    if images:
        _load(images, keys, mine)
        counters.compiled += len(images)
    if store is not None and len(wanted) > 1 and not packed:
        _pack(store, keys, stored | images)


def _compiling(nests: Sequence[Nest], found: int) -> Stage:
    """The stage of kernels being compiled, when so many others of the plan were found on disk."""
    before = build.counters.here + build.counters.workers

    def count() -> int:
        done = build.counters.here + build.counters.workers - before
        if done < len(nests):
            operations = dict.fromkeys(i.op for i in nests[done].program.body if isinstance(i, Compute))
            stage.note = f"{', '.join(operations)} for {host().cpu}; {found} from the cache"
        return done

    stage = Stage("compile kernels", len(nests), count=count)
    return stage


def _pack(store: cache.Store, keys: dict[str, str], images: dict[str, bytes]) -> None:
    """Keep the kernels of a plan in one file, those included that this process had already."""
    found = {}
    for text, key in keys.items():
        image = images.get(text) or store.get(key)
        if image is not None:
            found[key] = image
    store.put_pack(list(keys.values()), found)


def _load(images: dict[str, bytes], keys: dict[str, str], mine: dict[str, Future[int]]) -> None:
    """Load object files and say where their kernels are. Raises InternalError."""
    with _loading:
        if not _libraries:
            _libraries.append(Library())
        try:
            _libraries[-1].add(*images.values())
            found = {text: _libraries[-1].address(symbol(keys[text])) for text in images}
        except (InternalError, KeyError) as fault:
            # It may hold some of the names now; the next ones go to another one.
            _libraries.append(Library())
            raise fault if isinstance(fault, InternalError) else InternalError(f"a kernel lacks {fault}") from None
    for text, at in found.items():
        mine[text].set_result(at)
