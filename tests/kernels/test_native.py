"""Objects and plans: compiled once, loaded by a process without Numba, run as a list of steps."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from gpujit.kernels import cache, native
from gpujit.kernels.emit import KernelWriter
from gpujit.kernels.team import Team
from gpujit.support.errors import InternalError


def scaled(name: str, factor: float) -> str:
    writer = KernelWriter()
    with writer.kernel(name) as k:
        source, target = k.pointer(0), k.pointer(1)
        with k.loop(0, k.integer(2)) as i:
            k.e.store(target, i.value, k.e.load(source, i.value, "float32", 1) * factor)
    return str(writer)


def test_the_text_of_a_kernel_is_a_function_of_the_kernel():
    assert scaled("k", 2.0) == scaled("k", 2.0)
    assert scaled("k", 2.0) != scaled("k", 3.0)


def test_a_plan_runs_its_steps_in_order():
    library = native.Library(native.compile_ir([scaled("double", 2.0), scaled("triple", 3.0)]))
    kernels = [library.kernel(name) for name in ("double", "triple", "double")]
    buffers = [np.ones(5, np.float32), *(np.zeros(5, np.float32) for _ in kernels)]
    blocks = [native.pack_block([a, b, 5]) for a, b in pairwise(buffers)]
    functions = np.array([k.address for k in kernels], np.int64)
    addresses = np.array([b.ctypes.data for b in blocks], np.int64)
    team = Team(1)
    for count in (0, 3):
        assert not buffers[-1].any()
        team.run(team.address, functions.ctypes.data, addresses.ctypes.data, count)
    assert np.array_equal(buffers[-1], np.full(5, 12, np.float32))


def test_a_block_holds_addresses_integers_and_floats():
    x = np.zeros(3)
    block = native.pack_block([x, -7, 2.5])
    assert (int(block[0]), int(block[1]), float(block.view(np.float64)[2])) == (x.ctypes.data, -7, 2.5)


LOADER = """
import sys
import numpy as np
from gpujit.kernels import cache, native
kernel = native.Library(cache.unseal(open(sys.argv[1], "rb").read())).kernel("double")
x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
kernel(native.pack_block([x, y, 4]))
assert y.tolist() == [0, 2, 4, 6] and "numba" not in sys.modules
"""


def test_another_process_loads_the_object_without_numba(tmp_path):
    path = tmp_path / "plan.o"
    path.write_bytes(cache.seal(native.compile_ir([scaled("double", 2.0)])))
    subprocess.run([sys.executable, "-c", LOADER, str(path)], check=True, timeout=60)


def test_an_object_with_a_call_into_the_c_library_loads():
    from tests.kernels.math_reference import apply, build

    x = np.array([1e6, 1e20, -3e30, 0.5], np.float32)
    got = apply(build("sin", "float32", 4), x)
    assert np.allclose(got, np.sin(x.astype(np.float64)), atol=1e-7)


def test_what_llvm_cannot_read_is_an_internal_error():
    with pytest.raises(InternalError, match="LLVM refuses a kernel"):
        native.compile_ir(["define void @k() { ret i32 0 }"])
    with pytest.raises(InternalError, match="cannot be loaded"):
        native.Library(b"this is no object file")
    with pytest.raises(InternalError, match="no module"):
        native.compile_ir([])
    with pytest.raises(KeyError):
        native.Library(native.compile_ir([scaled("double", 2.0)])).address("triple")


def test_a_damaged_object_is_noticed():
    whole = cache.seal(native.compile_ir([scaled("double", 2.0)]))
    assert cache.seal(cache.unseal(whole)) == whole
    for damaged in (whole[:-1], whole[:100] + b"?" + whole[101:], b"", b"x" + whole, whole + b"\0"):
        with pytest.raises(InternalError, match="checksum"):
            cache.unseal(damaged)


def test_the_assembly_can_be_read():
    text = native.assembly(scaled("double", 2.0))
    assert "double:" in text
