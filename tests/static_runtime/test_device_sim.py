"""Whole models on a simulated GPU, equal to the CPU: NUMBA_ENABLE_CUDASIM=1 (``ci/cuda_sim.sh``)."""

from __future__ import annotations

import os
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("kernels run on a GPU, or in the simulator: NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)
pytest.importorskip("numba_cuda")

import gpujit
from gpujit import nn
from gpujit.cli.main import main
from gpujit.ir.dtypes import BFLOAT16
from gpujit.modules import ScriptModule
from gpujit.support.errors import ArgumentError, DeviceError, OpError
from tests.static_runtime.device_models import Embedded, Mlp, OneLayer, numbers, scripted

RUNS = 3


def parts(value: Any) -> list[np.ndarray]:
    return [x for v in value for x in parts(v)] if isinstance(value, (list, tuple)) else [value]


def assert_same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    assert type(got) is type(want)
    for a, b in zip(parts(got), parts(want), strict=True):
        assert type(a) is type(b)
        if not isinstance(a, np.ndarray):
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if a.dtype.kind in "biu":
            assert np.array_equal(a, b)
        else:
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), tolerance, tolerance)


def on_gpu(module: ScriptModule) -> ScriptModule:
    """A frozen, optimised copy on the simulated GPU."""
    return gpujit.optimize_for_inference(gpujit.freeze(module).to("cuda:0"))


def compare(
    model: nn.Module | ScriptModule, *args: Any, tolerance: float = 1e-5, interpreted: int = 0, runs: int = RUNS
) -> ScriptModule:
    """The module on the GPU, several calls of which gave what the interpreter gives."""
    module = model if isinstance(model, ScriptModule) else scripted(model)
    reference, found = gpujit.freeze(module), on_gpu(module)
    for _ in range(runs):
        want, got = reference(*deepcopy(args)), found(*deepcopy(args))
        assert_same(got, want, tolerance)
    assert found.plan_stats().interpreted == interpreted, found.explain()
    return found


def tiers(module: ScriptModule) -> dict[str, str]:
    """What runs each kind of node, as ``explain`` says."""
    found = {}
    for line in module.explain().splitlines():
        for tier in ("device kernel", "device library", "host", "view", "control", "interpreter"):
            if line.startswith(tier + " "):
                found[line[len(tier) :].split()[0].rstrip(":")] = tier
    return found


def test_mlp_is_captured_once_and_replayed() -> None:
    found = compare(Mlp(), numbers(3, 6))
    stats = found.plan_stats()
    assert (stats.captures, stats.replays, stats.fallbacks) == (1, RUNS - 1, 0)
    assert set(tiers(found).values()) <= {"device kernel", "device library", "view"}
    text = found.explain()
    assert "0 bytes to the host" in text and "1 graphs captured" in text


def test_replays_read_what_they_are_given() -> None:
    module = scripted(Mlp())
    reference, found = gpujit.freeze(module), on_gpu(module)
    for seed in range(4):
        x = numbers(3, 6, seed=seed)
        kept = found(x)
        assert_same(kept, reference(x))
        assert_same(found(x[::-1]), reference(x[::-1]))
        assert_same(kept, reference(x))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.pool = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2)
        self.linear = nn.Linear(16, 3)

    def forward(self, x):
        x = self.pool(self.norm(self.conv(x)).relu())
        return self.linear(x.flatten(1))


def test_convolutions_with_batch_norm() -> None:
    found = compare(Convolutions(), numbers(1, 2, 4, 4))
    assert "host" not in tiers(found).values()


class Ranked(nn.Module):
    def forward(self, x):
        best, places = x.topk(3, 1)
        _, order = x.sort(0, True)
        lower, _ = (-x).sort(1)
        kept = (x * 0).scatter_add(1, places, best.exp())
        return kept.index_add(0, order[:, 0], x), lower + 1, nn.functional.one_hot(places, 5).sum(1)


def test_ranks_and_sums_at_places() -> None:
    x = numbers(3, 5)
    x[0, 2:4], x[2] = np.nan, -0.0
    found = compare(Ranked(), x, runs=2)
    assert "host" not in tiers(found).values()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return self.norm(x + self.out((a @ v).transpose(1, 2).reshape(b, t, c)))


def test_an_attention_block() -> None:
    found = compare(Attention(), numbers(1, 3, 8), runs=2)
    assert "host" not in tiers(found).values()


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_half_types(dtype: np.dtype) -> None:
    module = scripted(Attention()).to(dtype)
    found = compare(module, numbers(1, 2, 8).astype(dtype), tolerance=3e-2, runs=2)
    assert "host" not in tiers(found).values()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return y, h, c


def test_lstm() -> None:
    compare(Recurrent(), numbers(3, 1, 3))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x):
        h = x.new_zeros((2, 4))
        c = h
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
        return h


def test_a_scan_of_lstm_cells() -> None:
    compare(Cell(), numbers(3, 2, 3))


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(4, 12), nn.BatchNorm1d(4)
        self.register_buffer("keys", np.zeros((2, 6, 4), "f4"))
        self.register_buffer("values", np.zeros((2, 6, 4), "f4"))
        self.register_buffer("count", np.zeros((), "i8"))
        self.register_buffer("largest", np.zeros((4,), "f4"))

    def forward(self, x, at):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, at, k)
        self.values[:, at] = v
        self.count.add_(at.size(0))
        self.largest.copy_(self.largest.maximum(v.abs().amax([0, 1])))
        mask = at[-1] < self.count - 1
        y = (q @ self.keys.transpose(1, 2)).softmax(-1) @ self.values
        return self.norm(y.transpose(1, 2)) * (1 - mask.float())


def test_caches_and_statistics_are_written_on_the_device() -> None:
    model = Cached()
    model.train()
    module = gpujit.script(model)
    reference = gpujit.load(module.save_to_buffer())
    module.to("cuda:0")
    for step in range(3):
        arguments = numbers(2, 2, 4, seed=step), np.arange(2) + 2 * step
        assert_same(module(*arguments), reference(*arguments))
        for name, value in reference.state_dict().items():
            assert_same(np.asarray(module.state_dict()[name]), value)
    stats = module.plan_stats()
    assert stats.interpreted == 0 and stats.captures and stats.replays
    assert "host" not in {t for kind, t in tiers(module).items() if kind != "aten::add_"}


class Branches(OneLayer):
    def forward(self, x):
        y = self.linear(x)
        if bool(x.sum() > 0):
            y = y * 2
        else:
            y = y - 1
        while bool(y.abs().sum() < 50.0):
            y = y * 1.5 + 0.1
        return y, x.view(-1)[:3]


def test_branches_and_loops_that_data_decide() -> None:
    module = scripted(Branches())
    for x in (np.ones((2, 4), "f4"), -np.ones((2, 4), "f4")):
        found = compare(module, x, tolerance=1e-4)
        assert "control" in tiers(found).values()
    assert found.plan_stats().replays


def test_embedding_and_what_it_refuses() -> None:
    module = scripted(Embedded())
    found = compare(module, np.array([[0, 4, 2]]))
    on_cpu = gpujit.optimize_for_inference(gpujit.freeze(module))
    for _ in range(2):
        faults = []
        for each in (on_cpu, found):
            with pytest.raises(OpError, match="out of range") as fault:
                each(np.array([[0, 5, 2]]))
            faults.append((fault.value.message, fault.value.where))
        assert faults[0] == faults[1]
        assert_same(found(np.array([[1, 1, 1]])), on_cpu(np.array([[1, 1, 1]])))


class Highest(OneLayer):
    def forward(self, x):
        y = self.linear(x)
        z, order = y.cummax(-1)
        return (z + y).relu(), order


def test_an_operator_that_runs_on_the_host() -> None:
    found = compare(Highest(), numbers(2, 4))
    assert tiers(found)["aten::cummax"] == "host"
    (line,) = [x for x in found.explain().splitlines() if x.startswith("host")]
    # A float32 matrix to the host, and it and its order of int64 back.
    assert "no kernel takes it" in line and "up to 128 bytes to the host and back" in line
    # What comes back is the same in each run: it lies there.
    assert f"{32 * RUNS} bytes to the host and 32 back so far" in found.explain()
    found(numbers(2, 4) + 1)
    assert f"{32 * (RUNS + 1)} bytes to the host and 64 back so far" in found.explain()


class Written(OneLayer):
    def forward(self, x, n: int):
        y = self.linear(x)
        z = y[n:]
        z.add_(1.0)
        y[:, 1:] = 0.5
        if bool(y.sum() > 0):
            z.mul_(2.0)
        return y.relu(), z


def test_memory_that_operators_write_into() -> None:
    compare(Written(), numbers(2, 4), 1)


class WritesInput(nn.Module):
    def forward(self, x):
        x.add_(1.0)
        return x.relu()


def test_an_input_that_is_written_into() -> None:
    module = scripted(WritesInput())
    compare(module, numbers(2, 4), interpreted=RUNS)
    found, x = on_gpu(module), np.zeros((2, 2), "f4")
    assert_same(found(x), np.ones((2, 2), "f4"))
    assert_same(x, np.ones((2, 2), "f4"))
    assert "it writes into its input 'x'" in found.explain()


class Views(nn.Module):
    def forward(self, x):
        y = x * 2
        a, b = y.chunk(2, 1)
        return y.t(), y.view(-1)[1:3], x, x[1:], a, b, y.unbind(0)


def test_views_as_results_are_copies() -> None:
    module = scripted(Views())
    found, x = compare(module, numbers(2, 4)), numbers(2, 4)
    result = found(x)
    for part in parts(result):
        part[...] = 7
    assert_same(found(x), gpujit.freeze(module)(x))
    assert "0 bytes to the host" in found.explain()


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("state", np.zeros((2, 4), "f4"))

    def forward(self, x):
        self.state = self.state * 0.5 + self.linear(x)
        return self.state.relu()


def test_attributes_are_host_arrays() -> None:
    module = scripted(Keeps())
    reference, found = gpujit.freeze(module), on_gpu(module)
    for seed in range(RUNS):
        x = numbers(2, 4, seed=seed)
        assert_same(found(x), reference(x))
        assert type(found.state) is np.ndarray
        assert_same(found.state, reference.state)


def test_a_module_that_is_not_frozen_follows_its_parameters() -> None:
    module, reference = scripted(Mlp()), scripted(Mlp())
    reference_state, x = reference.state_dict(), numbers(3, 6)
    for name, value in module.state_dict().items():
        reference_state[name][...] = value
    assert module.to("cuda:0") is module
    assert_same(module(x), reference(x))
    module.first.weight[...] *= 2
    reference.first.weight[...] *= 2
    assert_same(module(x), reference(x))
    assert module.plan_stats().made == 1
    assert "runs on the interpreter" in module.to("cpu").explain()
    assert_same(module(x), reference(x))


def test_lists_dicts_and_numbers() -> None:
    source = """
    def forward(self, xs: List[Tensor], flag: bool, scale: float):
        out: Dict[str, Tensor] = {"sum": xs[0] + xs[1], "all": xs[0] > 0}
        return out, [x * scale for x in xs], flag, (xs[0].long(), scale)
    """
    module = scripted(nn.Identity())
    module.define(source.replace("forward", "run"))
    want = module.run([numbers(3), numbers(3, seed=1)], True, 0.5)
    module.to("cuda:0")
    got = module.run([numbers(3), numbers(3, seed=1)], True, 0.5)
    assert sorted(got[0]) == sorted(want[0])
    assert_same(list(got[0].values()), list(want[0].values()))
    assert_same(got[1:], want[1:])


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x):
        return self.linear(self.norm(x)).tanh(), x.sum(-1)


def test_empty_and_flat_and_strided_inputs() -> None:
    module = scripted(Normed())
    reference, found = gpujit.freeze(module), on_gpu(module)
    for x in (
        numbers(0, 3, 8),
        numbers(8, 3, 2).T,
        numbers(2, 3, 16)[..., ::2],
        np.broadcast_to(numbers(8), (1, 2, 8)),
    ):
        assert_same(found(x), reference(x))


class Scalars(nn.Module):
    def forward(self, x, n):
        return x + n, (x > 0).sum(), x.to(n.dtype)


def test_scalars_bools_and_integers() -> None:
    compare(Scalars(), numbers(5), np.array(2))
    compare(Scalars(), np.array([True, False]), np.array(2, np.int32))


def test_out_arrays() -> None:
    module = scripted(Mlp())
    found, x = on_gpu(module), numbers(3, 6)
    out = np.zeros((3, 4), np.float32)
    assert found(x, out=out) is out
    assert_same(out, gpujit.freeze(module)(x))
    with pytest.raises(ArgumentError, match=r"out\[0\] is float32\[3, 5\], the output is float32\[3, 4\]"):
        found(x, out=np.zeros((3, 5), np.float32))


def test_devices_named_by_the_code_are_the_module_s() -> None:
    source = """
    def run(self, x):
        y = torch.zeros([2], device=torch.device("cuda:3"))
        if x.is_cuda:
            y = y + 1
        return (x.to("cpu") + y).cuda(), str(x.device)
    """
    module = scripted(nn.Identity())
    module.define(source)
    module.to("cuda:1")
    result, name = module.run(np.ones(2, "f4"))
    assert_same(result, np.full(2, 2, "f4"))
    assert name == "cuda:1"


def test_load_chooses_a_device(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    module, x = scripted(Mlp()), numbers(3, 6)
    module.save(tmp_path / "m.pt")
    want = module(x)
    for device in ("cuda:0", "cuda", "auto", "cpu"):
        found = gpujit.load(tmp_path / "m.pt", device=device)
        assert_same(found(x), want)
        assert ("device library" in found.explain()) is (device != "cpu")
        assert ("auto chose cuda:0" in found.explain()) is (device == "auto")
    with pytest.raises(DeviceError, match="neither"):
        gpujit.load(tmp_path / "m.pt", device="mps")
    assert_same(found.cuda()(x), want)
    assert_same(found.cuda(1).cpu()(x), want)


def test_threads_share_a_module() -> None:
    module = scripted(Mlp())
    reference, found = gpujit.freeze(module), on_gpu(module)
    xs = [numbers(3, 6, seed=s) for s in range(4)]
    results: list[Any] = [None] * len(xs)

    def work(k: int) -> None:
        results[k] = found(xs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for x, result in zip(xs, results, strict=True):
        assert_same(result, reference(x))


def test_hooks_and_warmup_and_examples() -> None:
    found = on_gpu(scripted(Mlp()))
    stats = found.warmup([(3, 6), (2, 6)])
    assert stats.made == 2
    assert_same(found(numbers(2, 6)).shape, (2, 4))
    assert found.plan_stats().made == 2


def test_background_plans() -> None:
    module = scripted(Mlp())
    found = gpujit.optimize_for_inference(gpujit.freeze(module).to("cuda:0"), compile="background")
    for _ in range(50):
        assert_same(found(numbers(3, 6)), module(numbers(3, 6)))
        if found.plan_stats().hits:
            break
        threading.Event().wait(0.1)
    assert found.plan_stats().hits


class Profiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x):
        return (self.first(x).relu() * 2).sum(1).nonzero()


def test_a_profile_has_the_time_of_each_step() -> None:
    module, x = on_gpu(scripted(Profiled())), numbers(2, 6)
    want = module(x)
    profile = gpujit.profile_module(module, (x,), rounds=2)
    assert profile.runner == "device" and "simulator" in profile.reason
    steps = {s.tier: s for s in profile.steps if s.kind.startswith(("aten::", "prim::"))}
    kernel, host = steps["device kernel"], steps["host"]
    assert kernel.seconds.least > 0 and kernel.seconds.runs == 2 and profile.kernel(kernel.kernel) is not None
    assert host.kind == "aten::nonzero" and host.seconds.least > 0
    assert 0.9 * profile.watched.median <= profile.total
    assert {e.track for e in profile.events} == {"calls", "steps", "gpu"}
    assert profile.machine.device and [b.level for b in profile.machine.bandwidths][-2:] == ["memory", "host to device"]
    assert kernel.fraction is not None and kernel.fraction > 0 and host.fraction is None
    assert profile.speedup is not None and profile.unfused is not None
    assert [g.label for g in profile.groups] == ["relu+mul+sum"]
    assert all(g.unfused_tier == "device" and g.speedup is not None and g.speedup.median > 0 for g in profile.groups)
    assert_same(module(x), want)


def test_the_profile_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted(Profiled()).save(tmp_path / "m.pt")
    assert main(["profile", "--quiet", str(tmp_path / "m.pt"), "2x6", "--rounds", "1", "--device", "cuda:0"]) == 0
    out = capsys.readouterr().out
    assert "runs on a device: cuda:0, Numba's CUDA simulator" in out and "[device kernel]" in out
