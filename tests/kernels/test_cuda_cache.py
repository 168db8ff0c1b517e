"""CUDA kernels' machine code: one for each kernel and kind of GPU, from memory, from disk, from the compiler.

What compiles runs where numba-cuda is (``ci/cuda_compile.sh``); the rest is tested with a compiler of the test's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("llvmlite")

from gpujit.cli.main import main
from gpujit.kernels import build, cache, cuda_cache
from gpujit.kernels.cuda_cache import Compiled
from gpujit.kernels.launches import DeviceKernel
from gpujit.kernels.supply import NotCompiled
from gpujit.support.config import config
from gpujit.support.errors import CacheWarning, DeviceError, InternalError
from tests.kernels.cache_help import forget, own_cache

ROOT = Path(__file__).parents[2]
SOURCE = """from numba import cuda
from gpujit.kernels.cuda_device import float32, int32
@cuda.jit
def kernel(a0, o0, n0):
    i = int32(cuda.threadIdx.x)
    o0[i] = a0[i] * float32({})
"""
ARGUMENTS = ("*float32", "*float32", "int32")
A100, H100 = (8, 0), (9, 0)
needs_compiler = pytest.mark.skipif(
    find_spec("numba_cuda") is None or os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="numba-cuda compiles it"
)


def scaled(factor: float, block: int = 128, label: str = "scaled") -> DeviceKernel:
    return DeviceKernel(SOURCE.format(factor), ARGUMENTS, block, label)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, and nothing in memory."""
    with own_cache(tmp_path / "kernels", monkeypatch) as found:
        yield found


def counts() -> tuple[int, int, int]:
    """Kernels compiled, loaded from disk, shared."""
    found = cuda_cache.counters
    return found.compiled, found.loaded, found.shared


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, int], int]]:
    """A compiler whose code is the source's last line and the capability; and the list of what it compiled."""
    found: list[tuple[str, tuple[int, int], int]] = []

    def compile_source(source: str, arguments: Any, capability: tuple[int, int], block: int) -> Compiled:
        if "mystery" in source:
            raise ValueError("no function mystery\nand more")
        found.append((source, capability, block))
        return Compiled(f"entry{len(found)}", f"{source.splitlines()[-1]} for {capability}".encode(), 0.5)

    monkeypatch.setattr(cuda_cache, "_compiler", lambda: SimpleNamespace(compile_source=compile_source))
    monkeypatch.setattr(cuda_cache, "toolchain", lambda: "numba-cuda 0.30.0\nnvidia-nvvm 13.0")
    return found


Calls = list[tuple[str, tuple[int, int], int]]


def test_a_kernel_is_compiled_once_for_each_kind_of_gpu(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cuda_cache.cubin(scaled(2), A100)
    assert cuda_cache.cubin(scaled(2, label="another name"), A100) is first
    second = cuda_cache.cubin(scaled(2), H100)
    assert first.cubin.endswith(b"for (8, 0)") and second.cubin.endswith(b"for (9, 0)")
    assert counts() == (2, 0, 1) and [c[1:] for c in compiled] == [(A100, 128), (H100, 128)]
    forget(monkeypatch)
    assert cuda_cache.cubin(scaled(2), H100) == second and cuda_cache.cubin(scaled(2), A100) == first
    assert counts() == (0, 2, 0)


def test_what_code_depends_on_is_in_its_name(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = scaled(2)
    keys = {cuda_cache.key_of(k, c) for k in (kernel, scaled(3), scaled(2, 256)) for c in (A100, H100)}
    keys.add(cuda_cache.key_of(DeviceKernel(kernel.source, ("*float32", "*float32", "int64"), 128, ""), A100))
    monkeypatch.setattr(cuda_cache, "toolchain", lambda: "numba-cuda 0.30.1\nnvidia-nvvm 13.0")
    keys.add(cuda_cache.key_of(kernel, A100))
    monkeypatch.setattr(cuda_cache, "code_version", lambda: "f" * 16)
    keys.add(cuda_cache.key_of(kernel, A100))
    assert len(keys) == 9
    assert cuda_cache.key_of(scaled(2, label="x"), A100) in keys


def test_many_kernels_come_in_order(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, str]] = []
    cuda_cache.cubin(scaled(1), A100)
    forget(monkeypatch)
    wanted = [(scaled(f), c) for f in (1, 2, 2) for c in (A100, H100)]
    found = cuda_cache.prepare(wanted, lambda k, how: told.append((k, how)))
    assert [f.cubin.decode()[-20:] for f in found if isinstance(f, Compiled)] == [
        f"float32({k.source[-3]}) for {c}"[-20:] for k, c in wanted
    ]
    assert [h for _, h in sorted(told)] == ["loaded", "compiled", "compiled", "compiled", "shared", "shared"]


def test_one_that_cannot_be_compiled_stops_no_other(compiled: Calls) -> None:
    bad = DeviceKernel("mystery", (), 32, "bad\x1b[31m\nname")
    told: list[tuple[int, str]] = []
    for _ in range(2):
        results = cuda_cache.prepare([(scaled(2), A100), (bad, A100), (scaled(3), A100)], lambda *t: told.append(t))
        fault = results[1]
        assert isinstance(fault, InternalError) and isinstance(results[2], Compiled)
        assert fault.message == "bad?[31m?name cannot be compiled for sm_80: ValueError: no function mystery"
    with pytest.raises(InternalError, match=r"bad.* cannot be compiled for sm_90"):
        cuda_cache.cubin(bad, H100)
    assert cuda_cache.counters.refused == 3 and told.count((1, "refused")) == 2


@pytest.mark.parametrize("damage", ["a byte", "half", "empty", "of another GPU", "whole but no kernel"])
def test_what_is_damaged_is_compiled_again(
    compiled: Calls, monkeypatch: pytest.MonkeyPatch, folder: Path, damage: str
) -> None:
    good = cuda_cache.cubin(scaled(2), A100)
    (path,) = folder.rglob("*.cubin")
    data = path.read_bytes()
    if damage == "a byte":
        path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    elif damage == "half":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        store = cache.store()
        assert store is not None
        head = json.dumps({"architecture": "sm_90", "entry": "x", "seconds": 1}).encode()
        image = head + b"\ncode" if damage == "of another GPU" else b"something else"
        store.put(path.stem, image, "", cache.CUBIN)
    forget(monkeypatch)
    assert cuda_cache.cubin(scaled(2), A100).cubin == good.cubin and counts() == (1, 0, 0)
    forget(monkeypatch)
    assert cuda_cache.cubin(scaled(2), A100).cubin == good.cubin and counts() == (0, 1, 0)


def test_an_entry_copied_to_another_name_is_not_used(compiled: Calls, folder: Path, monkeypatch: Any) -> None:
    cuda_cache.cubin(scaled(2), H100)
    (path,) = folder.rglob("*.cubin")
    other = cuda_cache.key_of(scaled(2), A100)
    (folder / other[:2]).mkdir(mode=0o700, exist_ok=True)
    (folder / other[:2] / f"{other}.cubin").write_bytes(path.read_bytes())
    forget(monkeypatch)
    assert cuda_cache.cubin(scaled(2), A100).cubin.endswith(b"for (8, 0)") and counts() == (1, 0, 0)


def test_where_nothing_can_be_written_it_warns(compiled: Calls, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with config(cache_dir=str(tmp_path / "file" / "kernels")), pytest.warns(CacheWarning):
        assert cuda_cache.cubin(scaled(2), A100).name == "entry1"
    with config(cache=False):
        assert cuda_cache.cubin(scaled(3), A100).name == "entry2"
    assert not list(tmp_path.rglob("*.cubin"))


def test_the_limit_holds_for_cubins_too(compiled: Calls, folder: Path) -> None:
    with config(cache_limit=3000):
        for k in range(12):
            cuda_cache.cubin(scaled(k), A100)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert 0 < size <= 3000 and len(list(folder.rglob("*.cubin"))) < 12


def test_none_is_compiled_where_none_may_be(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_cache.cubin(scaled(2), A100)
    forget(monkeypatch)
    with config(disable=("compile",)):
        assert cuda_cache.cubin(scaled(2), A100).name == "entry1"
        with pytest.raises(NotCompiled):
            cuda_cache.cubin(scaled(3), A100)
    assert cuda_cache.cubin(scaled(3), A100).name == "entry2"


def test_threads_that_ask_for_one_kernel_get_one(compiled: Calls) -> None:
    results: list[Compiled] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        results.append(cuda_cache.cubin(scaled(2), A100))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and len({id(r) for r in results}) == 1 and len(compiled) == 1


def test_an_interrupt_leaves_nothing_half_done(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        m.setattr(build, "run_all", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cuda_cache.cubin(scaled(2), A100)
    assert cuda_cache.cubin(scaled(2), A100).name == "entry1"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise cuda_cache.metadata.PackageNotFoundError(name)

    cuda_cache.toolchain.cache_clear()
    with monkeypatch.context() as m:
        m.setattr(cuda_cache.metadata, "version", version)
        with pytest.raises(DeviceError, match=r"numba-cuda.* is not installed: pip install 'gpujit\[cuda\]'"):
            cuda_cache.cubin(scaled(2), A100)
    cuda_cache.toolchain.cache_clear()


def test_without_nvidias_toolkit_it_says_what_to_install(compiled: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    class DynamicLibNotFoundError(RuntimeError):
        pass

    def compile_source(*_: Any) -> Compiled:
        raise DynamicLibNotFoundError("libnvvm.so")

    monkeypatch.setattr(cuda_cache, "_compiler", lambda: SimpleNamespace(compile_source=compile_source))
    with pytest.raises(DeviceError, match=r"NVIDIA's toolkit.* pip install"):
        cuda_cache.cubin(scaled(2), A100)


def test_a_toolkit_that_pip_did_not_install_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def version(name: str) -> str:
        if name.startswith("nvidia"):
            raise cuda_cache.metadata.PackageNotFoundError(name)
        return "1.0"

    (tmp_path / "version.json").write_text('{"cuda": {"version": "13.1.0"}}')
    for name in ("CUDA_HOME", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    monkeypatch.setattr(cuda_cache.metadata, "version", version)
    assert f"toolkit 13.1.0 in {tmp_path}" in cuda_cache.toolchain.__wrapped__()


def test_the_listing_names_the_architecture(compiled: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    cuda_cache.cubin(scaled(2, label="relu \x1b[31m add"), H100)
    assert main(["cache", "ls"]) == 0
    assert "sm_90, 128 threads a block: relu ?[31m add" in capsys.readouterr().out
    assert main(["cache", "ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kind"] == "cubin" and row["architecture"] == "sm_90" and row["files"][0].endswith(".cubin")
    source = Path(row["files"][1]).read_text()
    assert source.endswith(SOURCE.format(2)) and "# nvidia-nvvm 13.0\n" in source


@needs_compiler
def test_code_is_compiled_kept_and_loaded_without_a_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(build, "worker_count", lambda kernels, each: int(kernels > 2))
    monkeypatch.setattr(build._Batch, "take", lambda self: None)
    with config(threads=2):
        found = cuda_cache.prepare([(scaled(f), c) for f in (2, 3) for c in (A100, H100)])
    assert all(isinstance(f, Compiled) and f.cubin.startswith(b"\x7fELF") for f in found)
    assert build.counters.workers == 4
    code = (
        "import sys; from gpujit.kernels import cuda_cache; from tests.kernels.test_cuda_cache import *;"
        "found = cuda_cache.cubin(scaled(2), H100); print(found.name, len(found.cubin), 'numba' in sys.modules,"
        "cuda_cache.counters.loaded)"
    )
    environment = os.environ | {"GPUJIT_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert isinstance(found[1], Compiled)
    assert done.stdout.split() == [found[1].name, str(len(found[1].cubin)), "False", "1"]


@needs_compiler
def test_compiling_the_wrong_thing_is_told_clearly() -> None:
    bad = DeviceKernel(SOURCE.format("mystery"), ARGUMENTS, 128, "bad")
    with pytest.raises(InternalError, match="bad cannot be compiled for sm_90"):
        cuda_cache.cubin(bad, H100)
