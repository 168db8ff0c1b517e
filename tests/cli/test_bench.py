"""``gpujit bench``: contenders in processes of their own, with what cannot be had named and what differs found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from gpujit.cli import bench, bench_worker
from gpujit.cli.bench_worker import Absent, Task, leaves
from gpujit.cli.main import main
from tests.cli.shells import MLP

FACTS = {
    "name", "device", "absent", "problem", "version", "import_ms", "load_ms", "first_call_ms", "median_ms",
    "quarter_ms", "three_quarters_ms", "least_ms", "ratio", "memory", "choice", "of_largest",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "IDLE", 0.0)


def test_tiers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", MLP, "2x8", "--threads", "1", "--rounds", "3", "--tiers", "interpreter,planned", "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["threads"], found["rounds"], found["reference"], found["ok"]) == (1, 3, "interpreter", True)
    first, second = found["contenders"]
    assert (first["name"], second["name"]) == ("interpreter", "planned") and set(first) == set(second) == FACTS
    assert first["ratio"] == 1 and second["of_largest"] < 1e-5 and second["problem"] == ""
    for row in found["contenders"]:
        assert 0 < row["least_ms"] <= row["quarter_ms"] <= row["median_ms"] <= row["three_quarters_ms"]
        assert row["first_call_ms"] > 0 and row["load_ms"] > 0 and row["memory"] > 1_000_000
    assert err == "" or all(line.startswith("gpujit: prepare ") for line in err.splitlines())


def test_for_people_with_peers_that_are_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # In the worker these shadow what may be installed.
    for name in ("torch", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["--threads", "1", "--rounds", "1", "--tiers", "interpreter", "--peers", "torch.jit,onnxruntime"]
    assert main(["bench", MLP, "2x8", *arguments, "--onnx", "m.onnx"]) == 0
    head, header, row, *notes = capsys.readouterr().out.splitlines()
    assert head == "forward, 1 thread, 1 rounds; ratio: median over interpreter's"
    assert header.split()[:3] == ["median", "spread", "ratio"] and row.startswith("interpreter  ")
    assert notes == [
        "no torch.jit: torch is not installed here (not here)",
        "no onnxruntime: onnxruntime is not installed here (not here)",
    ]


def test_workers_do_not_import_from_the_folder_of_the_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert main(["bench", MLP, "2x8", "--threads", "1", "--rounds", "1", "--tiers", "interpreter"]) == 0


STUB = """
import json, pickle, sys
from pathlib import Path
import numpy as np
folder = Path(sys.argv[1])
task = pickle.loads((folder / "task").read_bytes())
np.savez(folder / "outputs.npz", *OUTPUTS[task.name])
where = {"version": "1", "device": DEVICES.get(task.device, task.device), "choice": CHOICE}
times = {**where, "import_seconds": 1, "load_seconds": 1, "first_call_seconds": 1, "memory": 1000}
print(json.dumps(times), flush=True)
for k, _ in enumerate(sys.stdin):
    print(json.dumps({"seconds": (k + 1) * (2 if task.name == "fused" else 1)}), flush=True)
"""


def stub(
    monkeypatch: pytest.MonkeyPatch, outputs: str, devices: dict[str, str] | None = None, choice: str = ""
) -> None:
    """Contenders that say they gave these outputs (an expression, by name), on these devices for those asked for."""
    given = f"OUTPUTS = {outputs}\nDEVICES = {devices or {}!r}\nCHOICE = {choice!r}"
    code = f"import sys; sys.path[:] = {sys.path!r}\nimport numpy as np\n{given}\n{STUB}"
    monkeypatch.setattr(bench, "command", lambda folder: [sys.executable, "-c", code, str(folder)])


def test_a_difference_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "{'planned': [np.ones(2)], 'fused': [np.ones(2) + 1], 'interpreter': [np.ones(2)] * 2}")
    assert main(["bench", MLP, "2x8", "--rounds", "1"]) == 1
    out = capsys.readouterr().out
    assert out.count("MISMATCH") == 2 and "fused gives something else: out: 2 of 2 numbers" in out
    assert "interpreter gives something else: out: 2 outputs instead of 1" in out
    assert main(["bench", MLP, "2x8", "--rounds", "1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [bool(r["problem"]) for r in found["contenders"]] == [False, True, True] and found["ok"] is False


def test_ratios_are_those_of_rounds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "dict.fromkeys(('planned', 'fused'), [np.ones(2)])")
    assert main(["bench", MLP, "2x8", "--rounds", "5", "--tiers", "planned,fused", "--json"]) == 0
    planned, fused = json.loads(capsys.readouterr().out)["contenders"]
    assert (planned["median_ms"], planned["least_ms"], planned["ratio"]) == (3000, 1000, 1)
    assert (fused["median_ms"], fused["ratio"], fused["first_call_ms"], fused["memory"]) == (6000, 2, 1000, 1000)


def test_a_process_that_dies_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; print('it is broken', file=sys.stderr); sys.exit(7)"
    monkeypatch.setattr(bench, "command", lambda folder: [sys.executable, "-c", code])
    assert main(["bench", MLP, "2x8", "--tiers", "planned"]) == 4
    assert "planned: its process ended with 7: it is broken" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([MLP, "2x8", "--peers", "tensorflow"], 2, "'tensorflow' is no peer; there are torch.jit"),
        ([MLP, "2x8", "--rounds", "0"], 2, "must be at least 1"),
        ([MLP], 2, "a value is missing"),
        (["none.pt", "2"], 3, "there is no such file"),
        ([MLP, "2x9", "--tiers", "interpreter"], 4, "interpreter: ShapeError: aten::linear"),
    ],
)
def test_faults(arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = main(["bench", *arguments])
    except SystemExit as stopped:
        found = stopped.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (found, out) == (code, "") and text in err


def task(name: str, onnx: str = "", device: str = "cpu") -> Task:
    values = [np.ones((2, 8), np.float32)]
    return Task(name, device, MLP, "forward", values, threads=1, weights="float32", seed=0, onnx=onnx)


def test_a_worker_in_this_process(tmp_path: Path) -> None:
    call, facts, count = bench_worker.prepared(task("interpreter"), tmp_path)
    assert count >= 1 and facts["memory"] > 0 and call().shape == (2, 4)
    with np.load(tmp_path / "outputs.npz") as found:
        np.testing.assert_array_equal(found["arr_0"], call())


def test_leaves_of_results() -> None:
    found = list(leaves({"a": [np.ones(2), (3, "x", None)], "b": 0.5}))
    assert [x.tolist() for x in found] == [[1, 1], 3, 0.5]


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(Absent, match="surely_not is not installed here"):
        bench_worker._module("surely_not", "surely_not")


@pytest.mark.torch
@pytest.mark.parametrize("name", ["torch.jit", "onnxruntime"])
def test_peers_compute_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if name == "onnxruntime":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    with bench.Contender(task(name)) as peer, bench.Contender(task("interpreter")) as ours:
        for contender in (peer, ours):
            contender.start()
            contender.round()
        assert peer.absent == "" and peer.times[0] > 0
        np.testing.assert_allclose(peer.outputs[0], ours.outputs[0], rtol=1e-5, atol=1e-6)
    assert not os.path.exists(peer._folder)
