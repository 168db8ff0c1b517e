"""Running groups: strides, checks, fallback, self-check, threads."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.fuser.report import describe, report_of
from gpujit.ir.graph import Node
from gpujit.kernels.tile import NotRendered
from gpujit.runtime import fused
from gpujit.runtime.fused import FusedStep
from gpujit.support.config import config
from gpujit.support.errors import FusionWarning, InternalError, OpError
from tests.fuser.help import array, fuse_free, read

TEXT = """graph(%x : Float(3, 4), %y : Float(4)):
  %one : int = prim::Constant[value=1]()
  %a = aten::add(%x, %y, %one)
  %b = aten::exp(%a)
  %c = aten::neg(%b)
  return (%b, %c)"""


def unfused(x: Any, y: Any) -> Any:
    b = np.exp(x + y)
    return b, -b


def step(text: str = TEXT, strict: bool = False, other: Any = unfused) -> FusedStep:
    graph = read(text)
    ((node, lowered),) = fuse_free(graph).programs.items()
    assert isinstance(node, Node)
    return FusedStep(lowered, other, node, strict)


def packed(x: np.ndarray) -> np.ndarray:
    """The same numbers as a field of records whose size is no multiple of an element's."""
    records = np.zeros(x.shape, np.dtype([("a", x.dtype), ("b", "u1")]))
    records["a"] = x
    return records["a"]


@pytest.mark.parametrize(
    "change",
    [lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 2, -1)[..., ::2], lambda x: x[..., ::-1].copy()[..., ::-1],
     packed, lambda x: np.broadcast_to(x[:1], x.shape)],
)  # fmt: skip
def test_any_strides(change: Any) -> None:
    run = step()
    x, y = change(array(3, 4)), array(4)
    for _ in range(3):
        for got, want in zip(run(x, y), unfused(x, y), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
            assert got.flags.c_contiguous and got.dtype == np.float32
    assert run.is_fused


def test_results_are_new_each_time() -> None:
    run = step()
    first, second = run(array(3, 4), array(4)), run(array(3, 4), array(4))
    assert not np.shares_memory(first[0], second[0])


def test_bound_kernels_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "MAX_BOUND", 2)
    run = step()
    for k in range(1, 6):
        x = np.zeros((3, 4 * k), np.float32)[:, ::k]
        run(x, array(4))
        assert len(run._bound) <= 2


def test_an_error_in_the_data_names_the_operator_and_keeps_the_kernel() -> None:
    text = """graph(%t : Float(5, 3), %i : Long(4)):
  %zero : int = prim::Constant[value=0]()
  %a = aten::index_select(%t, %zero, %i)
  %b = aten::neg(%a)
  return (%b)"""
    run = step(text)
    # The program reads the index first.
    assert [v.name for v in run.node.inputs] == ["i", "t"]
    with pytest.raises(OpError, match=r"aten::index_select: an index is out of range for dim 0 of shape \[5, 3\]"):
        run(np.array([0, 1, 7, 2]), array(5, 3))
    np.testing.assert_array_equal(run(np.array([0, 1, 4, 2]), array(5, 3)), -array(5, 3)[[0, 1, 4, 2]])


def broken(*args: Any, **options: Any) -> Any:
    raise NotRendered("no such instruction")


def test_what_has_no_kernel_runs_unfused_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "BoundKernel", broken)
    run = step()
    with pytest.warns(FusionWarning, match="fusion group of add, exp, neg runs unfused: .*no such instruction"):
        got = run(array(3, 4), array(4))
    np.testing.assert_allclose(got[0], unfused(array(3, 4), array(4))[0], rtol=1e-6)
    assert not run.is_fused
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(array(3, 4), array(4))


def test_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "BoundKernel", broken)
    with pytest.raises(InternalError, match="fusion group of add, exp, neg runs unfused"):
        step(strict=True)(array(3, 4), array(4))


class _Wrong:
    """A kernel that is off by one."""

    def __init__(self, *args: Any) -> None:
        self.inner = fused.__dict__["_right"](*args)

    def __call__(self, arrays: Any) -> None:
        self.inner(arrays)
        arrays[-1][...] += 1


def test_the_self_check_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_right", fused.BoundKernel, raising=False)
    monkeypatch.setattr(fused, "BoundKernel", _Wrong)
    run = step()
    with config(check_kernels=True), pytest.warns(FusionWarning, match="result 1 of its kernel is not what"):
        got = run(array(3, 4), array(4))
    np.testing.assert_allclose(got[1], unfused(array(3, 4), array(4))[1], rtol=1e-6)


def test_the_self_check_passes_a_right_one() -> None:
    run = step()
    with config(check_kernels=True):
        run(array(3, 4), array(4))
        run(array(3, 4), array(4))
    assert run.is_fused


def test_threads() -> None:
    run = step()
    inputs = [array(3, 4, seed=k) for k in range(6)]
    results: list[Any] = [None] * 6

    def work(i: int) -> None:
        for _ in range(50):
            results[i] = run(inputs[i], array(4))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for x, got in zip(inputs, results, strict=True):
        np.testing.assert_allclose(got[1], unfused(x, array(4))[1], rtol=1e-6)


def test_the_report_counts_what_is_saved() -> None:
    graph = read(TEXT)
    result = fuse_free(graph)
    (node,) = result.programs
    report = report_of(node)
    assert report.operators == ("add", "exp", "neg")
    # %a is neither stored nor read; %b is stored.
    assert report.saved_bytes == 2 * 12 * 4
    assert describe(result.programs, result.refusals).splitlines()[0] == f"group 0: {report}"


def test_a_refusal_is_told_once_for_each_line() -> None:
    graph = read("graph(%x : Float(4, 4)):\n  %a = aten::mm(%x, %x)\n  %b = aten::mm(%a, %x)\n  return (%b)")
    result = fuse_free(graph)
    assert describe(result.programs, result.refusals) == "not fused: aten::mm: aten::mm runs as a library operator"


def test_large_results_begin_at_memory_lines() -> None:
    for shape in ((), (0, 3), (300, 7)):
        x = fused.empty(shape, np.dtype("f4"))
        assert x.shape == shape and x.dtype == np.float32 and x.ctypes.data % fused.LINE == 0
        assert x.flags.c_contiguous and x.flags.writeable
