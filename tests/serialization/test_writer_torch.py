"""Archives that gpujit writes, read by PyTorch: the same results, the same sharing, and back again."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir.module import Function
from gpujit.passes.freeze.methods import FrozenFunction
from gpujit.serialization import zipwrite
from tests.compare import from_json
from tests.programs import View, archive, module
from tests.serialization.saved import code, members
from tests.serialization.test_python_print import CANONICAL, OLD, loop_graph, with_classes
from tests.serialization.test_writer import LANGUAGE, NAMES, RUNS

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CORPUS = Path(__file__).parent.parent / "models" / "corpus"


def _roundtrip() -> ModuleType:
    path = Path(__file__).parent.parent.parent / "ci" / "roundtrip.py"
    spec = importlib.util.spec_from_file_location("roundtrip", path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


ROUNDTRIP = _roundtrip()


def in_torch(data: bytes) -> Any:
    return torch.jit.load(io.BytesIO(data))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("frozen", [False, True], ids=["loaded", "frozen"])
def test_models_go_round(name: str, frozen: bool) -> None:
    """gpujit to PyTorch to gpujit, bytes and sizes included."""
    assert ROUNDTRIP.check(CORPUS / f"{name}.pt", frozen)[0] == []


@pytest.mark.parametrize("name", RUNS)
def test_programs_over_the_whole_language_go_round(name: str) -> None:
    """PyTorch computes the same from the files of a program and of the frozen program as from the one it wrote."""
    data = LANGUAGE.read(f"{name}.pt")
    loaded = in_torch(gpujit.load(data).save_to_buffer())
    frozen = in_torch(gpujit.freeze(gpujit.load(data).eval()).save_to_buffer())
    assert gpujit.load(loaded.save_to_buffer()).save_to_buffer()
    original = in_torch(data)
    for run in RUNS[name]:
        arguments = from_json(run["args"])
        if "error" in run:
            for module_ in (loaded, frozen):
                with pytest.raises((RuntimeError, torch.jit.Error)):
                    ROUNDTRIP.run_torch(module_, arguments)
        else:
            want, got, folded = (ROUNDTRIP.run_torch(m, arguments) for m in (original, loaded, frozen))
            assert ROUNDTRIP.difference(want, got) == 0
            assert ROUNDTRIP.difference(want, folded) <= 1e-6


@pytest.mark.parametrize("name", sorted(set(CANONICAL) - {"unknown"}))
def test_pytorch_compiles_printed_source(name: str) -> None:
    data = gpujit.load(archive(module(CANONICAL[name]), version=10)).save_to_buffer()
    loaded = in_torch(data)
    written = gpujit.load(loaded.save_to_buffer()).save_to_buffer()
    assert code(in_torch(written).save_to_buffer()) == code(loaded.save_to_buffer())


def test_classes_hooks_interfaces_and_contexts_run() -> None:
    model = with_classes()
    x = np.asarray([1, 5], np.float32)
    loaded = in_torch(model.save_to_buffer())
    np.testing.assert_array_equal(loaded(torch.from_numpy(x)).numpy(), model(x))


def test_operators_of_old_files_keep_their_meaning() -> None:
    x, n = np.asarray([1.5, -2], np.float32), np.asarray([7, -7], np.int64)
    model = gpujit.load(archive(module(OLD), version=3))
    loaded = in_torch(model.save_to_buffer())
    results = loaded(torch.from_numpy(x), torch.from_numpy(n))
    original = in_torch(archive(module(OLD), version=3))(torch.from_numpy(x), torch.from_numpy(n))
    for got, want, ours in zip(results, original, model(x, n), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)
        # PyTorch's gelu of -2 is 1 + erf(-1.4) without AVX-512, which keeps six digits.
        np.testing.assert_allclose(got.numpy(), ours, rtol=1e-6, atol=5e-7)


def test_a_loop_that_counts_and_tests_is_one_in_pytorch() -> None:
    source = module("def forward(self: __torch__.M, n: int) -> int:\n  return n")
    model = gpujit.load(archive(source))
    owner = model._object.type
    graph = loop_graph()
    graph.block.param_node.add_output(owner, "self")
    graph.block.param_node.outputs.reverse()
    for i, value in enumerate(graph.block.param_node.outputs):
        value.index = i
    function: Function = owner.methods["forward"]
    owner.methods["forward"] = FrozenFunction(function, owner, graph)
    loaded = in_torch(model.save_to_buffer())
    assert [loaded(n) for n in (0, 1, 3, 10)] == [model(n) for n in (0, 1, 3, 10)]


def test_storages_and_gradients_are_as_they_were() -> None:
    flat = np.arange(12, dtype=np.float32)
    source = module("", "a : Tensor\nb : Tensor\nc : Tensor", parameters=["a"], buffers=["b", "c"])
    attributes = {"a": View(flat, (6,), (1,)), "b": View(flat, (3, 2), (1, 3), 6), "c": View(flat, (4,), (0,), 2)}
    loaded = in_torch(gpujit.load(archive(source, attributes)).save_to_buffer())
    assert len({t.untyped_storage().data_ptr() for t in (loaded.a, loaded.b, loaded.c)}) == 1
    assert (loaded.b.stride(), loaded.b.storage_offset(), loaded.c.stride()) == ((1, 3), 6, (0,))
    loaded.a[2] = 99
    assert loaded.c.tolist() == [99] * 4
    trained = torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save_to_buffer()
    assert all(p.requires_grad for p in in_torch(gpujit.load(trained).save_to_buffer()).parameters())
    frozen = in_torch(gpujit.freeze(gpujit.load(trained).eval()).save_to_buffer())
    assert not frozen(torch.ones(1, 2)).requires_grad


def test_wide_fields_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipwrite, "WIDE_BYTES", 100)
    model = gpujit.load(CORPUS / "mlp.pt")
    inputs = ROUNDTRIP.inputs_of(CORPUS / "mlp.pt")
    want = ROUNDTRIP.run_torch(torch.jit.load(str(CORPUS / "mlp.pt")), inputs)
    assert ROUNDTRIP.difference(want, ROUNDTRIP.run_torch(in_torch(model.save_to_buffer()), inputs)) == 0


def test_quantised_layers_go_round() -> None:
    path = CORPUS / "quantized_dynamic.pt"
    model = gpujit.load(path)
    loaded = in_torch(model.save_to_buffer())
    inputs = ROUNDTRIP.inputs_of(path)
    want, got = (ROUNDTRIP.run_torch(m, inputs) for m in (torch.jit.load(str(path)), loaded))
    assert ROUNDTRIP.difference(want, got) == 0
    frozen = gpujit.freeze(model.eval()).save_to_buffer()
    assert b"c__torch__.torch.classes.quantized\nLinearPackedParamsBase\n" in members(frozen)["constants.pkl"]
    assert ROUNDTRIP.difference(want, ROUNDTRIP.run_torch(in_torch(frozen), inputs)) == 0


def test_pytorch_shows_the_authors_source() -> None:
    """Tables that gpujit writes are read by PyTorch when a module fails."""

    def fails(x):
        return x @ torch.zeros(7)

    scripted = torch.jit.script(fails).save_to_buffer()
    with pytest.raises(RuntimeError, match=r"return x @ torch.zeros\(7\)"):
        in_torch(gpujit.load(scripted).save_to_buffer())(torch.ones(3))
