"""Compiles the golden CUDA kernels for sm_80 and sm_90 and checks the machine code; needs no GPU and no driver.

    python ci/check_cuda_kernels.py [NAME ...]     a table of results; exit status 1 when a check fails
    python ci/check_cuda_kernels.py --vocabulary   every operation of tile programs, on every dtype, compiles
    python ci/check_cuda_kernels.py --self-test    bad kernels, each of which must be found out

Checked: no stack, no local memory, nothing spilled; no float64 instructions where the program has no float64; 128-bit
loads and stores where the plan has them; registers under a ceiling.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from gpujit.ir import scalar
from gpujit.ir.dtypes import BFLOAT16, HALF_TYPES, kind_of
from gpujit.kernels.cuda_compile import Compiled, Resources, compile_source, instructions, resources
from gpujit.kernels.cuda_tile import CudaKernel, plan_cuda
from gpujit.kernels.index import dim
from gpujit.kernels.numba_cuda import argument_types, render
from gpujit.kernels.schedule import moves
from gpujit.kernels.tile import Store, TileProgram
from gpujit.kernels.tile_build import Builder
from tests.kernels.cuda_programs import SAMPLES
from tests.kernels.cuda_step_samples import STEPS, kernels_of

ARCHITECTURES = ((8, 0), (9, 0))
# Registers of a multiprocessor, and the most that a thread of any kernel here should need.
REGISTERS, CEILING = 65536, 128
_FLOAT64 = re.compile(r"^D(ADD|MUL|FMA|SETP|MNMX)\b|\.F64\b|64H\b")


def wide_bytes(kernel: CudaKernel, is_store: bool) -> int:
    """The bytes of the widest load or store that the plan has; 0 for scalar ones alone."""
    p, found = kernel.program, 0
    for item, place in zip(moves(p), kernel.places, strict=True):
        if place.is_wide and isinstance(item, Store) == is_store:
            dtype = (p.outputs if is_store else p.inputs)[item.array].dtype
            found = max(found, min(16, dtype.itemsize * kernel.tile.width))
    return found


def uses_float64(kernel: CudaKernel) -> bool:
    p = kernel.program
    return any(x.dtype.name == "float64" for x in (*p.inputs, *p.outputs, *p.body))


def faults(
    found: Resources, code: Sequence[str], block: int, float64: bool, load: int, store: int, most: int = CEILING
) -> list[str]:
    """What is wrong with a kernel's machine code, whose threads may have ``most`` registers."""
    wrong = []
    if found.stack or found.local:
        wrong.append(f"{found.stack} bytes of stack, {found.local} of local memory")
    spilled = sorted({i for i in code if re.match(r"(LDL|STL)\b", i)})
    if spilled:
        wrong.append(f"uses local memory: {', '.join(spilled)}")
    doubles = sorted({i for i in code if _FLOAT64.search(i)})
    if doubles and not float64:
        wrong.append(f"float64 instructions: {', '.join(doubles)}")
    for word, wanted in (("LDG", load), ("STG", store)):
        if wanted == 16 and not any(i.startswith(word) and ".128" in i for i in code):
            wrong.append(f"no 128-bit {word}, which the plan has")
    ceiling = min(most, REGISTERS // block)
    if found.registers > ceiling:
        wrong.append(f"{found.registers} registers, at most {ceiling} are wanted")
    return wrong


def check(name: str, architecture: tuple[int, int]) -> bool:
    """Whether one golden kernel passes; its line is printed."""
    kernel = SAMPLES[name].call().kernel
    compiled = compile_source(render(kernel), argument_types(kernel), architecture, kernel.tile.block)
    found, code = resources(compiled), instructions(compiled)
    load, store = wide_bytes(kernel, False), wide_bytes(kernel, True)
    wrong = faults(found, code, kernel.tile.block, uses_float64(kernel), load, store)
    widths = "".join(f"{w}.{b * 8} " if b else "" for w, b in (("LDG", load), ("STG", store)))
    print(
        f"{name:20} sm_{architecture[0]}{architecture[1]}  {found.registers:4} registers {len(code):5} instructions "
        f"{len(compiled.cubin):6} bytes {compiled.seconds:5.2f} s  {kernel.tile.layout:6} {widths:16} "
        f"{'ok' if not wrong else 'FAILS: ' + '; '.join(wrong)}",
        flush=True,
    )
    return not wrong


# What a source moves 16 bytes at a time with, where its elements are float32 or of a half type.
_WIDE = re.compile(r"\bv(load|store)(4|8_b?f16)\(")


def check_step(name: str, architecture: tuple[int, int]) -> bool:
    """Whether the kernels of an operator's step pass; a line for each is printed."""
    passed = True
    for kernel in kernels_of(name):
        compiled = compile_source(kernel.source, kernel.arguments, architecture, kernel.block)
        found, code = resources(compiled), instructions(compiled)
        wide = {m.group(1) for m in _WIDE.finditer(kernel.source)}
        load, store = (16 if way in wide else 0 for way in ("load", "store"))
        wrong = faults(found, code, kernel.block, "*float64" in kernel.arguments, load, store)
        print(
            f"{name:20} sm_{architecture[0]}{architecture[1]}  {found.registers:4} registers {len(code):5} "
            f"instructions {len(compiled.cubin):6} bytes {compiled.seconds:5.2f} s  {kernel.label:24} "
            f"{'ok' if not wrong else 'FAILS: ' + '; '.join(wrong)}",
            flush=True,
        )
        passed = passed and not wrong
    return passed


_LOCAL = """from numba import cuda, types
from gpujit.kernels.cuda_device import float32, int32
@cuda.jit
def kernel(a0, o0, n0):
    i = int32(cuda.threadIdx.x)
    kept = cuda.local.array(64, types.float32)
    for k in range(64):
        kept[a0[i] % 64] = k
        kept[k] = kept[k] + float32(1.0)
    o0[i] = kept[a0[i + 1] % 64]
"""
_DOUBLE = """from numba import cuda
from gpujit.kernels.cuda_device import int32
@cuda.jit
def kernel(a0, o0, n0):
    i = int32(cuda.threadIdx.x)
    o0[i] = a0[i] * 2.5 + 0.1
"""
_NARROW = """from numba import cuda
from gpujit.kernels.cuda_device import int32
@cuda.jit
def kernel(a0, o0, n0):
    i = int32(cuda.threadIdx.x)
    o0[i] = a0[i]
"""
_GREEDY = "\n".join(
    ["from numba import cuda", "from gpujit.kernels.cuda_device import int32, vload4, vstore4", "@cuda.jit"]
    + ["def kernel(a0, o0, n0):", "    i = int32(cuda.threadIdx.x)"]
    + [f"    x{k} = a0[int32(i + {k} * n0)]" for k in range(200)]
    + ["    cuda.syncthreads()"]
    + [f"    o0[int32(i + {k} * n0)] = x{199 - k} / x{k}" for k in range(200)]
)
BAD = {
    "local memory": (_LOCAL, ["*int32", "*float32", "int32"], "local memory"),
    "float64": (_DOUBLE, ["*float32", "*float32", "int32"], "float64 instructions"),
    "narrow": (_NARROW, ["*float32", "*float32", "int32"], "no 128-bit LDG"),
    "many registers": (_GREEDY, ["*float32", "*float32", "int32"], "registers, at most"),
}


def self_test() -> bool:
    """Whether every bad kernel is found out, for the right reason."""
    right = True
    for name, (source, types, wanted) in BAD.items():
        compiled: Compiled = compile_source(source, types, (9, 0))
        wrong = faults(resources(compiled), instructions(compiled), 128, False, 16, 16)
        found = any(wanted in w for w in wrong)
        right = right and found
        print(f"{name:20} {'found out' if found else 'NOT FOUND OUT'}: {'; '.join(wrong)}")
    return right


def vocabulary(dtype: np.dtype, rows: bool) -> TileProgram:
    """A program with every operation, or every operation over rows, that takes ``dtype``, and casts to every other."""
    builder = Builder(2, 1) if rows else Builder(1)
    at = tuple(dim(d) for d in range(builder.dims))
    letter = "bifc"[kind_of(dtype)]
    x, y = (builder.load(builder.input(dtype, builder.dims), at) for _ in range(2))
    results = []
    if rows:
        results = [scalar.reduce(name, x) for name, op in scalar.ROW_OPS.items() if letter in op.takes]
    elif dtype not in HALF_TYPES:
        results = [
            scalar.apply(name, *(x, y)[: op.arity]) for name, op in scalar.SCALAR_OPS.items() if letter in op.takes
        ]
        results.append(scalar.where(scalar.apply("eq", x, y), x, y))
    if not rows:
        results += [scalar.cast(x, d) for d in DTYPES if d != dtype]
    for result in results:
        full = not rows or result.op in scalar.SCANS
        builder.store(builder.output(result.dtype, len(at) if full else 1), at if full else at[:1], result)
    return builder.finish()


DTYPES = [np.dtype(d) for d in ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")] + [BFLOAT16]


def check_vocabulary() -> bool:
    """Compiles programs that between them use every operation on every dtype, by wide and by single elements."""
    for dtype in DTYPES:
        for rows in (False, True):
            if rows and dtype in HALF_TYPES:
                continue
            program = vocabulary(dtype, rows)
            strides = [(4096, 1)] if rows else [(1,)]
            outs = [strides[0] if o.rank == program.dims else (1,) for o in program.outputs]
            call = plan_cuda(program, strides * 2, outs, (64, 4096) if rows else (4096,))
            started = time.perf_counter()
            compiled = compile_source(render(call.kernel), argument_types(call.kernel), (9, 0), call.kernel.tile.block)
            print(
                f"{dtype.name:9} {'over rows' if rows else 'each':9} {len(program.body):3} instructions, "
                f"{call.kernel.tile.width} wide, {len(compiled.cubin)} bytes in {time.perf_counter() - started:.1f} s",
                flush=True,
            )
    return True


def main(arguments: Sequence[str]) -> int:
    if "--vocabulary" in arguments:
        return 0 if check_vocabulary() else 1
    if "--self-test" in arguments:
        return 0 if self_test() else 1
    passed = [
        (check if name in SAMPLES else check_step)(name, architecture)
        for name in arguments or (*SAMPLES, *STEPS)
        for architecture in ARCHITECTURES
    ]
    print(f"{sum(passed)} of {len(passed)} kernels pass")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
