"""Kernels from memory, from disk, from the compiler and from worker processes: one each, and always the right one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from gpujit.kernels import build, cache, cpu_launch, supply
from gpujit.kernels.tile import NotRendered
from gpujit.support.config import config
from gpujit.support.errors import CacheWarning, InternalError
from tests.kernels.cache_help import forget, geometry, nest, own_cache, run, scaled, unknown

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and nothing in memory."""
    with own_cache(tmp_path / "kernels", monkeypatch) as found:
        yield found


def counts() -> tuple[int, int, int]:
    """Kernels compiled, loaded from disk, shared."""
    return supply.counters.compiled, supply.counters.loaded, supply.counters.shared


def prepare(*factors: float) -> None:
    cpu_launch.prepare([geometry(scaled(f)) for f in factors])


def test_equal_programs_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert supply.address(nest(scaled(2))) == supply.address(nest(scaled(2))) != supply.address(nest(scaled(3)))
    assert counts() == (2, 0, 1)
    forget(monkeypatch)
    supply.address(nest(scaled(2)))
    assert counts() == (0, 1, 0)


def test_a_plan_is_one_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    prepare(2, 3, 4)
    assert counts() == (3, 0, 0) and len(list(folder.rglob("*.pack"))) == 1
    forget(monkeypatch)
    for path in folder.rglob("*.o"):
        path.unlink()
    prepare(4, 2, 3)
    assert counts() == (0, 3, 0)
    assert run(scaled(3)) == [3, 6, 9, 12, 15] and run(scaled(4)) == [4, 8, 12, 16, 20]


def test_plans_share_kernels_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(2, 3)
    prepare(3, 4)
    assert counts() == (3, 0, 1)
    forget(monkeypatch)
    # A plan that was never seen, of kernels that were.
    prepare(2, 4)
    assert counts() == (0, 2, 0)
    forget(monkeypatch)
    prepare(3, 4)
    assert counts() == (0, 2, 0)


@pytest.mark.parametrize("suffix", ["*.o", "*.pack"])
def test_damage_on_disk_is_repaired(monkeypatch: pytest.MonkeyPatch, folder: Path, suffix: str) -> None:
    prepare(2, 3)
    for path in folder.rglob(suffix):
        data = bytearray(path.read_bytes())
        data[200] ^= 1
        path.write_bytes(data)
    if suffix == "*.o":
        next(folder.rglob("*.pack")).unlink()
    forget(monkeypatch)
    prepare(2, 3)
    assert counts() == ((2, 0, 0) if suffix == "*.o" else (0, 2, 0))
    assert run(scaled(3)) == [3, 6, 9, 12, 15]
    forget(monkeypatch)
    prepare(2, 3)
    assert counts() == (0, 2, 0)


def test_what_llvm_cannot_load_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(2, 3)
    key = cache.key_of(nest_key(2), supply.host_key())
    store = cache.store()
    assert store is not None
    for path in store.folder.rglob("*.pack"):
        path.unlink()
    store.put(key, b"no object file, but whole", "")
    forget(monkeypatch)
    prepare(2, 3)
    assert counts() == (2, 0, 0)
    assert run(scaled(2)) == [2, 4, 6, 8, 10]


def nest_key(factor: float) -> str:
    return cpu_launch.plan(geometry(scaled(factor))).nest.key


@pytest.mark.parametrize("other", ["host_key", "code_version"])
def test_kernels_of_another_machine_or_version_are_not_used(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    prepare(2, 3)
    forget(monkeypatch)
    if other == "host_key":
        monkeypatch.setattr(supply, "host_key", lambda: "f" * 16)
    else:
        monkeypatch.setattr(cache, "code_version", lambda part="": "f" * 16)
    prepare(2, 3)
    assert counts() == (2, 0, 0)


def test_a_kernel_that_cannot_be_had_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        cpu_launch.prepare([geometry(p) for p in (scaled(2), unknown(), scaled(3))])
        assert supply.counters.refused == 1
        with pytest.raises(NotRendered, match="mystery"):
            supply.address(nest(unknown()))
        assert run(scaled(3)) == [3, 6, 9, 12, 15]
        forget(monkeypatch)
    cpu_launch.prepare([geometry(p) for p in (scaled(2), unknown(), scaled(3))])
    assert counts() == (0, 2, 0)


def test_without_a_cache_nothing_is_written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for _ in range(2):
        forget(monkeypatch)
        with config(cache=False):
            prepare(2, 3)
            assert counts() == (2, 0, 0)
    assert not folder.exists()


def test_a_place_that_cannot_be_written_is_a_warning_and_kernels_all_the_same(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with config(cache_dir=str(place)), pytest.warns(CacheWarning) as said:
        prepare(2, 3)
        prepare(5, 6)
        assert run(scaled(2)) == [2, 4, 6, 8, 10]
    assert len(said) == 1


def test_a_module_is_compiled_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "define i64 @answer() { ret i64 42 }"
    for wanted in ((1, 0, 0), (1, 1, 0)):
        library = supply.module("the answer", lambda: source, 1)
        assert counts() == wanted and library.address("answer")
    store = cache.store()
    assert store is not None and [e.source() for e in store.entries()] == [f"; the answer\n{source}"]
    supply.module("<function f at 0x7f00>", lambda: source, 1)
    assert len(store.entries()) == 1
    with pytest.raises(InternalError, match="LLVM refuses"):
        supply.module("nonsense", lambda: "define nothing", 1)


def test_threads_that_want_the_same_compile_it_once() -> None:
    found: list[int] = []
    start = threading.Barrier(6)

    def ask() -> None:
        start.wait()
        found.extend(supply.address(nest(scaled(f))) for f in (2, 3, 4))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(found)) == 3 and build.counters.here == 3


def test_an_interrupt_leaves_nothing_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(build, "build_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(2, 3)
    prepare(2, 3)
    assert counts() == (2, 0, 0)


# ----------------------------------------------------------------------------------------------------- workers

FACTORS = range(2, 12)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(build, "worker_count", lambda kernels, each: int(kernels > 4))
    yield
    children = f"/proc/self/task/{os.getpid()}/children"
    if os.path.exists(children):
        assert not Path(children).read_text().split(), "a worker is left"


def check_all() -> None:
    prepare(*FACTORS)
    assert counts() == (len(FACTORS), 0, 0)
    for f in FACTORS:
        assert run(scaled(f)) == [f * n for n in (1, 2, 3, 4, 5)]


def test_workers_bring_what_this_process_would_have_compiled(workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    nests = [nest(scaled(f)) for f in FACTORS]
    names = [f"kernel{f}" for f in FACTORS]
    alone = [build.build(n, name) for n, name in zip(nests, names, strict=True)]
    # This process waits, so that workers do it all.
    monkeypatch.setattr(build, "PATIENCE", 60)
    monkeypatch.setattr(build._Batch, "take", lambda self: None)
    assert build.build_all(nests, names) == alone
    assert asdict(build.counters) == {"here": 0, "workers": len(FACTORS)}
    refused = build.build_all([*nests, nest(unknown())], [*names, "mystery"])[-1]
    assert isinstance(refused, NotRendered) and "mystery" in refused.message


@pytest.fixture
def after_workers(workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process begins when a worker has got a kernel, or there is none."""
    take = build._Batch.take

    def late(self: build._Batch) -> int | None:
        while self.serving and len(self.waiting) == len(self.tasks):
            time.sleep(0.001)
        return take(self)

    monkeypatch.setattr(build._Batch, "take", late)


def test_this_process_and_workers_share_the_work(after_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PATIENCE", 60)
    check_all()
    assert build.counters.here > 0 and build.counters.workers > 0
    assert build.counters.here + build.counters.workers == len(FACTORS)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "raise SystemExit(3)",
        "print('hello', flush=True)\nimport time\ntime.sleep(60)",
        "import time; time.sleep(60)",
    ],
    ids=["ends", "fails", "says something else", "hangs"],
)
def test_a_worker_that_is_none(workers: None, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    monkeypatch.setattr(build, "_start", lambda kind: subprocess.Popen([sys.executable, "-c", code], **pipes))
    check_all()


DIES = """
import os, sys
sys.path[:] = {path!r}
from gpujit.kernels import build
answers = os.fdopen(1, "wb")
build.send(answers, build.greeting())
build.receive(os.fdopen(0, "rb"))
{then}
"""


@pytest.mark.parametrize(
    "then",
    ["os._exit(1)", "answers.write(b'12'); answers.flush(); os._exit(1)", "import time; time.sleep(60)"],
    ids=["without an answer", "in the middle of an answer", "hangs"],
)
def test_a_worker_that_dies_over_a_kernel(after_workers: None, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    code = DIES.format(path=[str(ROOT), *sys.path], then=then)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    monkeypatch.setattr(build, "_start", lambda kind: subprocess.Popen([sys.executable, "-c", code], **pipes))
    check_all()
    assert asdict(build.counters) == {"here": len(FACTORS), "workers": 0}


def test_where_no_process_can_be_started(workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: build.Kind) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(build, "_start", refused)
    check_all()


def test_when_workers_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 8 * build.KERNELS_PER_WORKER
    with config(threads=4):
        assert build.worker_count(many) == 3
        assert build.worker_count(build.KERNELS_PER_WORKER) == 1
        assert build.worker_count(build.KERNELS_PER_WORKER - 1) == 0
        with config(disable=("workers",)):
            assert build.worker_count(many) == 0
        for program in ("/usr/bin/uwsgi", "", None):
            monkeypatch.setattr(sys, "executable", program)
            assert build.worker_count(many) == 0
    with config(threads=1):
        assert build.worker_count(many) == 0


# --------------------------------------------------------------------------------------------------- processes

# No guard of __main__, work at import, a thread, a fork: what scripts are like.
SCRIPT = """
import os, sys, threading
from tests.kernels.cache_help import geometry, run, scaled
from gpujit.kernels import build, cpu_launch, supply
build.KERNELS_PER_WORKER = 4
build.PATIENCE = 60
# Workers do it all.
build._Batch.take = lambda self: None
def work(base):
    cpu_launch.prepare([geometry(scaled(base + k)) for k in range(12)])
    assert run(scaled(base)) == [base * n for n in (1, 2, 3, 4, 5)]
work(100)
thread = threading.Thread(target=work, args=(200,))
thread.start()
thread.join()
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        try:
            work(300)
            work(100)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(supply.counters.compiled, supply.counters.loaded, build.counters.workers)
"""


def script(tmp_path: Path, text: str, **environment: str) -> list[str]:
    """The words that a script prints, run in a process of its own."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    variables = {"PYTHONPATH": str(ROOT), "GPUJIT_CACHE_DIR": str(tmp_path / "kernels"), "GPUJIT_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, "-W", "error::gpujit.support.errors.CacheWarning", str(path)],
        env=os.environ | variables | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    return found.stdout.split()


def test_any_script_may_use_workers_and_the_next_run_compiles_nothing(tmp_path: Path) -> None:
    # With the worker team's own code.
    assert script(tmp_path, SCRIPT) == ["25", "0", "24"]
    assert script(tmp_path, SCRIPT) == ["0", "25", "0"]


def test_a_home_that_cannot_be_used_is_one_warning(tmp_path: Path) -> None:
    text = """
    import warnings
    from tests.kernels.cache_help import run, scaled
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert run(scaled(2)) == [2, 4, 6, 8, 10] and run(scaled(3)) == [3, 6, 9, 12, 15]
    print(*(w.category.__name__ for w in said))
    """
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "", "GPUJIT_CACHE_DIR": ""}
    assert script(tmp_path, text, **nowhere) == ["CacheWarning"]
    assert script(tmp_path, text, **nowhere, GPUJIT_CACHE="0") == []
