"""Vectors in LLVM IR: memory, arithmetic, conversions, reductions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from gpujit.kernels import native
from gpujit.kernels.emit import KernelBody, KernelWriter
from gpujit.kernels.target import host
from gpujit.kernels.vector import Vector
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError

DTYPES = {
    name: np.dtype(getattr(np, name if name != "bool" else "bool_"))
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
} | {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
Write = Callable[[KernelBody], None]


def kernel(write: Write, name: str = "k", avx512: bool | None = None) -> native.Kernel:
    writer = KernelWriter()
    with writer.kernel(name, avx512=avx512) as k:
        write(k)
    return native.Library(native.compile_ir([str(writer)], native.TIDY)).kernel(name)


def pointwise(
    compute: Callable[..., Vector], inputs: list[np.ndarray], kinds: list[str], result: str, lanes: int = 8
) -> np.ndarray:
    """``compute(emitter, *vectors)`` over whole arrays, with a guard behind the output that must stay as it is."""
    n = inputs[0].size

    def write(k: KernelBody) -> None:
        places = [k.pointer(i) for i in range(len(inputs) + 1)]

        def body(i: Vector, mask: Vector | None) -> None:
            values = [k.e.load(p, i.value, kind, lanes, mask) for p, kind in zip(places, kinds)]
            k.e.store(places[-1], i.value, compute(k.e, *values), result, mask)

        k.vector_loop(k.integer(len(inputs) + 1), lanes, body)

    guarded = np.full(n + 8, 77).astype(DTYPES[result])
    kernel(write)(native.pack_block([*inputs, guarded, n]))
    assert np.array_equal(guarded[n:], np.full(8, 77).astype(DTYPES[result])), "wrote behind the end"
    return guarded[:n]


def numbers(dtype: str, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if kind.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    if kind.kind in "iu":
        x = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, n, dtype=kind, endpoint=True)
        x[: n // 2] = rng.integers(0, 9, n // 2)
        return x
    x = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(kind)
    x[:6] = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32).astype(kind)
    return x


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal to the bit, any NaN for any other."""
    if got.dtype.kind in "biu":
        return np.array_equal(got, want)
    nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    whole = np.dtype(f"u{got.dtype.itemsize}")
    return bool(np.all(nan | (got.view(whole) == want.astype(got.dtype).view(whole))))


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 15, 16, 17, 50])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64"])
def test_loops_reach_every_element_and_no_other(dtype, n, lanes):
    x = numbers(dtype, max(n, 6))[:n].copy()
    assert same(pointwise(lambda e, a: a, [x], [dtype], dtype, lanes), x)


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "int16"])
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
def test_arithmetic(op, dtype, lanes):
    x, y = numbers(dtype, 100, 1), numbers(dtype, 100, 2)
    with np.errstate(all="ignore"):
        assert same(pointwise(lambda e, a, b: op(a, b), [x, y], [dtype] * 2, dtype, lanes), op(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("op", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_comparisons(op, dtype):
    x, y = numbers(dtype, 100, 1), numbers(dtype, 100, 1)
    y[::3] = x[::3][::-1]
    assert same(pointwise(lambda e, a, b: op(a, b), [x, y], [dtype] * 2, "bool"), op(x, y))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint32"])
def test_bits_and_shifts(dtype):
    x, y = numbers(dtype, 100, 1), numbers(dtype, 100, 2)
    count = (y & 7).astype(dtype)
    for op in (operator.and_, operator.or_, operator.xor):
        assert same(pointwise(lambda e, a, b, op=op: op(a, b), [x, y], [dtype] * 2, dtype), op(x, y))
    for op in (operator.lshift, operator.rshift):
        assert same(pointwise(lambda e, a, b, op=op: op(a, b), [x, count], [dtype] * 2, dtype), op(x, count))
    assert same(pointwise(lambda e, a: ~a, [x], [dtype], dtype), ~x)
    with np.errstate(all="ignore"):
        assert same(pointwise(lambda e, a: -a, [x], [dtype], dtype), (-x.astype(np.int64)).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_minimum_and_maximum_pass_nan_on(dtype):
    x, y = numbers(dtype, 100, 1), numbers(dtype, 100, 2)
    assert same(pointwise(lambda e, a, b: e.maximum(a, b), [x, y], [dtype] * 2, dtype), np.maximum(x, y))
    assert same(pointwise(lambda e, a, b: e.minimum(a, b), [x, y], [dtype] * 2, dtype), np.minimum(x, y))
    assert same(pointwise(lambda e, a, b: e.maximum(b, a), [x, y], [dtype] * 2, dtype), np.maximum(y, x))
    for limit in (6, 0, 1) if dtype[0] != "f" else (6.0, -0.5, 0.0, math.inf, -math.inf, math.nan):
        for name in ("maximum", "minimum"):
            given = x, np.array(limit, dtype)
            for swapped in (False, True):
                want = getattr(np, name)(*(reversed(given) if swapped else given))

                def limited(e, a, name=name, limit=limit, swapped=swapped):
                    operands = [a, a.like(limit)]
                    return getattr(e, name)(*(reversed(operands) if swapped else operands))

                assert same(pointwise(limited, [x], [dtype], dtype), want), (name, limit, swapped)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounding_signs_and_fma(dtype):
    x, y = numbers(dtype, 100, 1), numbers(dtype, 100, 2)
    x[10:16] = [0.5, 1.5, 2.5, -0.5, -2.5, 1e30]
    pairs = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "abs": np.abs, "sqrt": np.sqrt}
    with np.errstate(all="ignore"):
        for name, want in pairs.items():
            assert same(pointwise(lambda e, a, n=name: getattr(e, n)(a), [x], [dtype], dtype), want(x)), name
        assert same(pointwise(lambda e, a, b: e.copysign(a, b), [x, y], [dtype] * 2, dtype), np.copysign(x, y))
        wide = np.float64 if dtype == "float32" else np.longdouble
        if np.finfo(np.longdouble).nmant >= 63 or dtype == "float32":
            got = pointwise(lambda e, a, b: e.fma(a, b, 1.0), [x[20:], y[20:]], [dtype] * 2, dtype)
            assert np.allclose(
                got, (x[20:].astype(wide) * y[20:] + 1).astype(dtype), rtol=1e-7 if dtype == "float32" else 1e-15
            )


def converted(x: np.ndarray, dtype: str) -> np.ndarray:
    """PyTorch's conversion on x86: through int32 or int64, whose most negative number stands for what does not fit."""
    kind = DTYPES[dtype]
    if kind.kind in "iu" and x.dtype.kind not in "biu":
        bits = 64 if kind.itemsize == 8 or dtype == "uint32" else 32
        wide = x.astype(np.float64)
        fits = (wide >= -(2.0 ** (bits - 1))) & (wide < 2.0 ** (bits - 1))
        whole = np.where(fits, np.trunc(np.where(fits, wide, 0)), 0).astype(np.int64)
        return np.where(fits, whole, -(2 ** (bits - 1))).astype(f"int{bits}").astype(kind)
    if kind.itemsize == 2 and dtype in ("float16", "bfloat16"):
        return x.astype(np.float32).astype(kind)
    if kind.kind == "b":
        return x.astype(np.float32) != 0
    return x.astype(kind)


@pytest.mark.parametrize("source", DTYPES)
def test_conversions(source):
    x = numbers(source, 64, 4)
    if DTYPES[source].kind == "f":
        x[8:14] = np.array([3e9, -3e9, 300, -300, 1e19, -1.5]).astype(np.float32).astype(x.dtype)
    with np.errstate(all="ignore"):
        outputs = [np.zeros(x.size, kind) for kind in DTYPES.values()]

        def write(k: KernelBody) -> None:
            with k.loop(0, x.size, 8) as i:
                value = k.e.load(k.pointer(0), i.value, source, 8)
                for slot, target in enumerate(DTYPES):
                    k.e.store(k.pointer(1 + slot), i.value, value, target)

        kernel(write)(native.pack_block([x, *outputs]))
        for target, out in zip(DTYPES, outputs):
            assert same(out, converted(x, target)), f"{source} to {target}"


def test_half_types_load_every_pattern_and_store_the_nearest():
    patterns = np.arange(1 << 16, dtype=np.uint16)
    rng = np.random.default_rng(0)
    floats = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    halves = np.float32(1) + rng.integers(0, 1 << 12, 1000).astype(np.float32) * np.float32(2.0**-12)
    floats[:1000], floats[1000:3000] = halves, (rng.standard_normal(2000) * 1e-6).astype(np.float32)
    with np.errstate(all="ignore"):
        for dtype in ("float16", "bfloat16"):
            x = patterns.view(DTYPES[dtype])
            assert same(pointwise(lambda e, a: a, [x], [dtype], "float32"), x.astype(np.float32))
            assert same(pointwise(lambda e, a: a, [floats], ["float32"], dtype), floats.astype(DTYPES[dtype]))


def test_strided_gathered_and_scattered_access():
    x = np.arange(200, dtype=np.float32)
    order = np.random.default_rng(1).permutation(64).astype(np.int64)
    out = np.zeros(400, np.float32)

    def write(k: KernelBody) -> None:
        source, indices, target, stride = k.pointer(0), k.pointer(1), k.pointer(2), k.integer(3)
        e = k.e
        e.store(target, 0, e.load(source, 5, "float32", 8, stride=stride.value))
        chosen = e.load(indices, 0, "int64", 8)
        e.store(target, 8, e.gather(source, chosen, "float32"))
        some = e.iota("int32", 8) < 3
        e.store(target, 16, e.gather(source, chosen, "float32", some, other=-1))
        e.store(target, 100, e.load(source, 0, "float32", 8), stride=stride.value)
        e.scatter(target, chosen + 200, e.load(source, 0, "float32", 8), mask=some)
        e.prefetch(source, 64, "float32")

    kernel(write)(native.pack_block([x, order, out, 3]))
    assert np.array_equal(out[:8], x[5 : 5 + 24 : 3])
    assert np.array_equal(out[8:16], x[order[:8]])
    assert np.array_equal(out[16:24], [*x[order[:3]], *[-1] * 5])
    assert np.array_equal(out[100:124:3], x[:8])
    want = np.zeros(64)
    want[order[:3]] = x[:3]
    assert np.array_equal(out[200:264], want)


@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_reductions_add_in_one_tree(lanes):
    x = (np.random.default_rng(5).standard_normal(lanes) * 1e4).astype(np.float32)
    out = np.zeros(5, np.float32)

    def write(k: KernelBody) -> None:
        e, target = k.e, k.pointer(1)
        v = e.load(k.pointer(0), 0, "float32", lanes)
        for i, value in enumerate((e.sum(v), e.reduce(v, e.maximum), e.reduce(v, e.minimum))):
            e.store(target, i, value)
        for i, mask in enumerate((e.any(v > 0), e.all(v > 0))):
            e.store(target, 3 + i, e.cast(mask, "float32"))

    kernel(write)(native.pack_block([x, out]))
    tree = x.copy()
    while tree.size > 1:
        tree = tree[: tree.size // 2] + tree[tree.size // 2 :]
    assert np.array_equal(out, [tree[0], x.max(), x.min(), (x > 0).any(), (x > 0).all()])


def test_vectors_of_different_kinds_do_not_mix():
    writer = KernelWriter()
    with writer.kernel("k") as k, pytest.raises(TypeError, match="float32x8 and int32x8 do not mix"):
        k.e.iota("float32", 8) + k.e.iota("int32", 8)
    with pytest.raises(TypeError, match="memory only"):
        k.e.cast(k.e.iota("float32", 8), "float16")


def test_loops_carry_values():
    x = np.random.default_rng(6).standard_normal(100)
    out = np.zeros(1)

    def write(k: KernelBody) -> None:
        source, target, n = k.pointer(0), k.pointer(1), k.integer(2)
        with k.carried_loop(0, n, 1, [k.e.constant("float64", 1, 0.0)]) as state:
            state.following[0] = state.now[0] + k.e.load(source, state.index.value, "float64", 1)
        k.e.store(target, 0, state.now[0])

    for n in (0, 1, 100):
        kernel(write)(native.pack_block([x, out, n]))
        assert out[0] == sum(x[:n].tolist())


def test_a_rare_case_replaces_the_usual_result():
    x = numbers("float32", 64)

    def compute(e, a):
        return e.unless_rare(a > 100, a * 2.0, lambda: e.select(a > 100, -1.0, a * 2.0))

    with np.errstate(all="ignore"):
        assert same(pointwise(compute, [x], ["float32"], "float32"), np.where(x > 100, np.float32(-1), x * 2))


def test_streaming_stores_write_past_the_caches():
    raw = np.zeros(64, np.float32)
    offset = -raw.ctypes.data % 64 // 4
    place = raw[offset : offset + 16]

    def write(k: KernelBody) -> None:
        k.e.store(k.pointer(0), 0, k.e.iota("float32", 16), stream=True)

    kernel(write)(native.pack_block([place]))
    assert np.array_equal(place, np.arange(16))


def test_the_width_can_be_chosen():
    own = native.host_key()
    with config(simd_width=4):
        assert (host().width, host().lanes(64), host().lanes(8)) == (4, 2, 16)
        assert native.host_key() != own or host().width == 4
    with (
        config(simd_width=5),
        pytest.raises(ArgumentError, match="GPUJIT_SIMD_WIDTH=5: a vector has 1, 4, 8, 16 floats"),
    ):
        host()
