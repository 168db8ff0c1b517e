"""Kernels to machine code: in this process, and in several others at the same time when there are many.

LLVM runs under one lock in a process, so threads do not help. Workers are started for one batch and end with it. This
process compiles as well, from the other end of the list, and takes over what a worker does not bring: a worker that is
slow to start, hangs or dies costs nothing but its share.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from gpujit.kernels.cache import code_version
from gpujit.kernels.cpu_nest import Nest
from gpujit.kernels.native import TIDY, compile_ir, host_key
from gpujit.kernels.target import host
from gpujit.kernels.tile import NotRendered
from gpujit.support import background
from gpujit.support.config import config
from gpujit.support.errors import InternalError
from gpujit.support.progress import Stage
from gpujit.support.threads import thread_count

# Kernels for each worker that is started: about what one process compiles while another one starts.
KERNELS_PER_WORKER = 16
MAX_WORKERS = 8
# How long nothing may come from the workers before this process compiles the rest of a batch too, in seconds.
PATIENCE = 0.2
# Worker to parent: how a kernel went.
DONE, REFUSED, FAILED = b"d", b"r", b"f"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Built:
    """An object file with one kernel, and the text it was made from."""

    image: bytes
    source: str


# What tells of a task that is done: its number and what became of it. Several threads call it.
Done = Callable[[int, "Built | InternalError"], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """How kernels of one kind are built.

    ``module`` has a function ``build`` of a task's parts, which raises InternalError, and a function ``greeting``: what
    a worker says first, so that its code and machine are the parent's. ``each``: kernels for each worker that is
    started, ``patience``: see above.
    """

    module: str
    each: int
    patience: float


@dataclass
class Counters:
    """Kernels compiled since the process began: by itself, and by workers."""

    here: int = 0
    workers: int = 0


counters = Counters()


def build(nest: Nest, name: str) -> Built:
    """The nest's kernel as a function ``name``. Raises NotRendered, InternalError."""
    # Importing the renderer costs more than loading kernels that are compiled already.
    from gpujit.kernels.cpu import render

    text = render(nest, name)
    return Built(compile_ir([text], optimise=TIDY), f"{_heading(nest, name)}\n{text}")


def _heading(nest: Nest, name: str) -> str:
    here = host()
    lines = [f"kernel {name}, for {here.cpu} ({here.width} floats in a vector)", *nest.key.splitlines()]
    return "\n".join(f"; {line}".rstrip() for line in lines)


def build_all(nests: Sequence[Nest], names: Sequence[str]) -> list[Built | InternalError]:
    """The kernels of all nests, each a function of its name; in the place of one that cannot be built, the reason."""
    return run_all(list(zip(nests, names, strict=True)), Kind(__name__, KERNELS_PER_WORKER, PATIENCE))


def run_all(tasks: Sequence[tuple[Any, ...]], kind: Kind, done: Done | None = None) -> list[Built | InternalError]:
    """What ``build`` of the kind makes of each task; in the place of one that cannot be built, the reason."""
    with Stage("compile kernels", len(tasks)) as stage:

        def tell(k: int, result: Built | InternalError) -> None:
            if done is not None:
                done(k, result)
            stage.advance()

        count = worker_count(len(tasks), kind.each)
        if count:
            return _Batch(tasks, kind, tell).run(count)
        found = []
        for k, task in enumerate(tasks):
            found.append(_attempt(kind, task))
            tell(k, found[-1])
        return found


def worker_count(kernels: int, each: int = KERNELS_PER_WORKER) -> int:
    """Workers that pay for so many kernels; none where a script's interpreter is not to be had."""
    if kernels < each or "workers" in config.disable or getattr(sys, "frozen", False) or not _is_python(sys.executable):
        return 0
    return max(min(thread_count() - 1, kernels // each, MAX_WORKERS), 0)


def _is_python(path: str | None) -> bool:
    # A program that embeds Python gives its own path.
    return bool(path) and os.path.basename(path or "").lower().startswith(("python", "pypy"))


def _attempt(kind: Kind, task: tuple[Any, ...]) -> Built | InternalError:
    background.checkpoint()
    try:
        found: Built = import_module(kind.module).build(*task)
    except InternalError as fault:
        return fault
    counters.here += 1
    return found


class _Batch:
    """Kernels being built; the list is taken from both ends."""

    def __init__(self, tasks: Sequence[tuple[Any, ...]], kind: Kind, done: Done) -> None:
        self.tasks, self.kind, self.done = tasks, kind, done
        self.results: dict[int, Built | InternalError] = {}
        self.waiting = deque(range(len(tasks)))
        self.changed = threading.Condition()
        self.serving = 0
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, workers: int) -> list[Built | InternalError]:
        threads = []
        try:
            for _ in range(workers):
                try:
                    self.processes.append(_start(self.kind))
                except OSError:
                    # No more processes here: what there is will do.
                    break
                self.serving += 1
                thread = threading.Thread(target=self.serve, args=(self.processes[-1],), daemon=True)
                thread.start()
                threads.append(thread)
            while (k := self.take()) is not None:
                self.keep(k, _attempt(self.kind, self.tasks[k]))
            self.wait()
            for k in range(len(self.tasks)):
                if k not in self.results:
                    self.keep(k, _attempt(self.kind, self.tasks[k]))
        finally:
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.wait()
            for thread in threads:
                thread.join()
        return [self.results[k] for k in range(len(self.tasks))]

    def keep(self, k: int, found: Built | InternalError) -> bool:
        """Note a result, unless there is one already; whether it is the first."""
        with self.changed:
            is_first = k not in self.results
            if is_first:
                self.results[k] = found
                self.done(k, found)
            self.changed.notify_all()
        return is_first

    def take(self) -> int | None:
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def wait(self) -> None:
        """Until all is built, no worker is left, or nothing has come for a while."""
        with self.changed:
            while len(self.results) < len(self.tasks) and self.serving:
                if not self.changed.wait(self.kind.patience):
                    return

    def serve(self, process: subprocess.Popen[bytes]) -> None:
        """Feed one worker, in a thread of its own, until nothing is left or it fails."""
        requests, answers = process.stdin, process.stdout
        assert requests is not None and answers is not None
        try:
            # Also what else of the worker's start prints may come first: it is no worker of ours then.
            if receive(answers) == import_module(self.kind.module).greeting():
                while self.waiting:
                    try:
                        k = self.waiting.pop()
                    except IndexError:
                        break
                    send(requests, pickle.dumps(self.tasks[k], pickle.HIGHEST_PROTOCOL))
                    found = _result(answers)
                    counters.workers += self.keep(k, found) and isinstance(found, Built)
        except (OSError, EOFError, ValueError):
            # It died, or was ended with the batch.
            pass
        finally:
            for pipe in (requests, answers):
                with suppress(OSError):
                    pipe.close()
            with self.changed:
                self.serving -= 1
                self.changed.notify_all()


def _result(answers: IO[bytes]) -> Built | InternalError:
    status = receive(answers)
    if status == DONE:
        return Built(receive(answers), receive(answers).decode())
    message = receive(answers).decode()
    return NotRendered(message) if status == REFUSED else InternalError(message)


def greeting() -> bytes:
    """What a worker says first: its code and machine must be the parent's."""
    return f"gpujit worker {code_version()} {host_key()}".encode()


def _start(kind: Kind) -> subprocess.Popen[bytes]:
    """A worker process. Raises OSError."""
    # -c and not the caller's script: whatever that does when imported, it is not imported.
    path = [str(p) for p in sys.path]
    code = f"import sys; sys.path[:] = {path!r}; from gpujit.kernels.build_worker import main; main({kind.module!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        # An interrupt from the keyboard is the parent's to handle.
        start_new_session=True,
        env=os.environ | {"GPUJIT_CACHE": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def send(pipe: IO[bytes], data: bytes) -> None:
    """Write a message. Raises OSError."""
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """Read a message. Raises EOFError when the other side is gone, ValueError for what is no message."""
    head = _exactly(pipe, _LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > 1 << 30:
        raise ValueError("no message")
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], count: int) -> bytes:
    data: Any = pipe.read(count)
    if len(data) != count:
        raise EOFError
    return bytes(data)
