"""``gpujit bench --device``: contenders on devices, what each tier is there, and what is said where there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpujit import modules
from gpujit.cli import bench, bench_worker
from gpujit.cli.bench_worker import Absent
from gpujit.cli.main import main
from gpujit.runtime.device import is_simulated
from gpujit.support.config import config
from tests.cli.shells import MLP
from tests.cli.test_bench import stub, task
from tests.runtime.recording_device import RecordingDevice

OUTPUTS = "dict.fromkeys(('planned', 'fused', 'interpreter', 'torch.jit'), [np.ones(2)])"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    found = RecordingDevice()
    monkeypatch.setattr(modules, "open_device", lambda place: found)
    return found


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the simulator nor a GPU, in processes that are started."""
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    code = main(["bench", MLP, "2x8", "--quiet", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if "--json" in arguments else out, err


# ---------------------------------------------------------------------------------------------------- the command


def test_each_device_has_contenders_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, OUTPUTS)
    arguments = ("--rounds", "2", "--device", "cuda:1,cpu", "--tiers", "planned,interpreter", "--threads", "1")
    code, found, err = run(capsys, *arguments, "--json")
    assert (code, err, found["devices"]) == (0, "", ["cuda:1", "cpu"])
    assert found["reference"] == "planned on cuda:1"
    assert [(r["name"], r["device"]) for r in found["contenders"]] == [
        ("planned on cuda:1", "cuda:1"), ("interpreter on cuda:1", "cuda:1"),
        ("planned", "cpu"), ("interpreter", "cpu"),
    ]  # fmt: skip
    code, out, _ = run(capsys, *arguments)
    head, _, *rows = out.splitlines()
    assert head == "forward, 1 thread, 2 rounds; ratio: median over planned on cuda:1's"
    assert rows[0].startswith("planned on cuda:1  ")
    assert rows[2].startswith("planned  ") and len(rows) == 4


@pytest.mark.parametrize("devices", ["auto,cpu", "cpu,auto"])
def test_auto_is_what_it_turns_out_to_be(
    devices: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "auto chose the CPU: there is \x1b no driver"
    stub(monkeypatch, OUTPUTS, {"auto": "cpu"}, why)
    code, out, _ = run(capsys, "--rounds", "1", "--device", devices, "--tiers", "planned,fused")
    assert code == 0 and out.count("planned  ") == out.count("fused  ") == 1 and " on " not in out.splitlines()[2]
    assert out.splitlines()[-1] == "auto chose the CPU: there is \\x1b no driver"


def test_peers_are_asked_for_the_device_that_was_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    stub(monkeypatch, OUTPUTS, {"auto": "cuda:3"})
    monkeypatch.setattr(bench, "Task", lambda *given: asked.append(given[:2]) or bench_worker.Task(*given))
    arguments = ("--rounds", "1", "--device", "auto", "--tiers", "planned", "--peers", "torch.jit")
    code, found, _ = run(capsys, *arguments, "--json")
    assert code == 0 and asked == [("planned", "auto"), ("torch.jit", "cuda:3")]
    assert [r["name"] for r in found["contenders"]] == ["planned on cuda:3", "torch.jit on cuda:3"]


def test_a_device_that_gives_something_else_is_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, "{'planned': [np.ones(2) * (2 if task.device == 'cuda:0' else 1)]}")
    monkeypatch.setattr(
        bench, "command", lambda folder, found=bench.command: [*found(folder)[:2], late(found(folder)[2]), str(folder)]
    )
    code, out, _ = run(capsys, "--rounds", "1", "--device", "cpu,cuda:0", "--tiers", "planned")
    assert code == 1 and "planned on cuda:0 gives something else: out: 2 of 2 numbers" in out


def late(code: str) -> str:
    """The stub, with outputs that know the task."""
    start, _, rest = code.partition("OUTPUTS = ")
    outputs, _, rest = rest.partition("\n")
    return start + rest.replace("np.savez(", f"OUTPUTS = {outputs}\nnp.savez(")


@pytest.mark.usefixtures("no_driver")
def test_without_a_driver_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for device in ("cuda", "cuda:0,cpu"):
        code, _, err = run(capsys, "--rounds", "1", "--device", device, "--tiers", "planned")
        assert code == 4 and err.startswith("gpujit: error[device]: cuda") and "Error:" not in err
    code, found, err = run(capsys, "--rounds", "1", "--device", "cuda:0", "--tiers", "planned", "--json")
    assert code == 4 and found["error"] == "device" and found["message"] in err


@pytest.mark.usefixtures("no_driver")
def test_auto_without_a_driver_is_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--rounds", "1", "--device", "auto", "--tiers", "interpreter", "--json")
    code, found, _ = run(capsys, *arguments)
    (row,) = found["contenders"]
    assert (code, row["device"], found["devices"]) == (0, "cpu", ["cpu"])
    assert row["choice"].startswith("auto chose the CPU: ")


@pytest.mark.parametrize(
    ("device", "code", "text"),
    [("toaster", 4, "'toaster' is no device"), ("cpu,cuda:x", 4, "'cuda:x' is no"), (",", 2, "no device is named")],
)
def test_names_are_looked_at_before_anything_starts(
    device: str, code: int, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "Contender", None)
    found, out, err = run(capsys, "--device", device)
    assert (found, out) == (code, "") and text in err


@pytest.mark.skipif(not is_simulated(), reason="needs Numba's simulator")
def test_in_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--device", "cuda:0,cpu", "--rounds", "1", "--tiers", "planned,interpreter", "--json")
    code, found, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert [r["device"] for r in found["contenders"]] == ["cuda:0", "cuda:0", "cpu", "cpu"]
    assert all(r["of_largest"] < 1e-5 and r["median_ms"] > 0 for r in found["contenders"])


# ---------------------------------------------------------------------------------------------------- its processes


def calls(device: RecordingDevice) -> list[str]:
    """What was put on a stream."""
    return [k for k in device.kinds() if k in ("launch", "gemm", "replay", "upload", "synchronise")]


def made(name: str, tmp_path: Path, device: RecordingDevice) -> tuple[list[str], np.ndarray]:
    """What a call of a contender on the device puts there when it is warm, and what the first one gave."""
    call, facts, _ = bench_worker.prepared(task(name, device="cuda:0"), tmp_path)
    assert (facts["device"], facts["choice"]) == ("cuda:0", "")
    device.forget()
    call()
    with np.load(tmp_path / "outputs.npz") as found:
        return calls(device), found["arr_0"]


def test_tiers_on_a_device(device: RecordingDevice, tmp_path: Path) -> None:
    bench_worker.prepared(task("interpreter"), tmp_path)
    with np.load(tmp_path / "outputs.npz") as found:
        want = found["arr_0"]
    planned, fused, single = (made(n, tmp_path, device) for n in ("planned", "fused", "interpreter"))
    for _, got in (planned, fused, single):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)
    # Inputs lie there, and a call ends when its results do.
    assert planned[0] == ["replay", "synchronise"]
    assert fused[0] == ["gemm", "launch", "gemm", "launch", "synchronise"]
    # gelu and layer_norm apart.
    assert single[0] == ["gemm", "launch", "launch", "gemm", "launch", "synchronise"]


def test_a_device_that_fails_is_told_as_one(
    device: RecordingDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device.most_bytes = 16
    answers: list[dict[str, Any]] = []
    writer = SimpleNamespace(write=lambda text: answers.append(json.loads(text)), flush=lambda: None)
    bench_worker.serve(task("planned", device="cuda:0"), tmp_path, writer)  # type: ignore[arg-type]
    fault = answers[0]["device_fault"]
    assert fault["code"] == "device-memory" and "no memory on cuda:0" in fault["message"]


def test_a_switch_takes_groups_apart_on_the_cpu() -> None:
    import gpujit

    x = np.ones((2, 8), np.float32)
    module = gpujit.load(MLP)
    want = module(x)
    with config(disable=("fusion",)):
        single = gpujit.optimize_for_inference(module)
        np.testing.assert_allclose(single(x), want, 1e-5, 1e-6)
        assert "group 0" not in single.explain() and "+gelu" not in single.explain()
        assert single.plan_stats().interpreted == 0
    fused = gpujit.optimize_for_inference(module)
    fused(x)
    assert "group 0" in fused.explain() and "+gelu" in fused.explain()


# ---------------------------------------------------------------------------------------------------- peers


@pytest.mark.torch
@pytest.mark.parametrize("name", ["torch.jit", "torch.compile"])
def test_pytorch_without_a_gpu_is_absent(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(Absent, match="sees no GPU"):
        bench_worker.prepared(task(name, device="cuda:0"), tmp_path)


class FakeSession:
    """What the ONNX Runtime of a GPU would be asked."""

    def __init__(self, log: list[Any], works: bool) -> None:
        self.log, self._works = log, works

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"][0 if self._works else 1 :]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x")]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y")]

    def io_binding(self) -> Any:
        return SimpleNamespace(
            bind_ortvalue_input=lambda name, value: self.log.append(("input", name, *value)),
            bind_output=lambda name, kind, number: self.log.append(("output", name, kind, number)),
            synchronize_outputs=lambda: self.log.append("wait"),
            copy_outputs_to_cpu=lambda: [np.full((2, 4), 3, np.float32)],
        )

    def run_with_iobinding(self, binding: Any) -> None:
        self.log.append("run")


def fake_runtime(log: list[Any], *, providers: list[str], works: bool = True) -> Any:
    def session(model: str, options: Any, providers: list[Any]) -> FakeSession:
        log.append((os.path.basename(model), providers))
        return FakeSession(log, works)

    return SimpleNamespace(
        get_available_providers=lambda: providers,
        SessionOptions=SimpleNamespace,
        InferenceSession=session,
        OrtValue=SimpleNamespace(ortvalue_from_numpy=lambda array, kind, number: (array.shape, kind, number)),
    )


def test_onnx_runtime_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log: list[Any] = []
    both = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(bench_worker, "_module", lambda *_: (fake_runtime(log, providers=both), "1"))
    _, facts, _ = bench_worker.prepared(task("onnxruntime", "m.onnx", "cuda:2"), tmp_path)
    assert facts["device"] == "cuda:2"
    assert log[:3] == [
        ("m.onnx", [("CUDAExecutionProvider", {"device_id": 2}), "CPUExecutionProvider"]),
        ("input", "x", (2, 8), "cuda", 2),
        ("output", "y", "cuda", 2),
    ]
    assert log[3:5] == ["run", "wait"]
    with np.load(tmp_path / "outputs.npz") as found:
        assert found["arr_0"].tolist() == [[3] * 4] * 2


@pytest.mark.parametrize(("providers", "text"), [([], "no part for GPUs"), (["CUDAExecutionProvider"], "cannot use")])
def test_onnx_runtime_without_a_gpu_is_absent(
    providers: list[str], text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        bench_worker, "_module", lambda *_: (fake_runtime([], providers=providers, works=False), "1")
    )
    with pytest.raises(Absent, match=text):
        bench_worker.prepared(task("onnxruntime", "m.onnx", "cuda:0"), tmp_path)
