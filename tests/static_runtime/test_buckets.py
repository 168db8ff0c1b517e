"""Buckets: padded calls against unpadded ones, plans and counters, refusals, threads, bad options."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import gpujit
from gpujit import StaticModule, StaticModuleOptions, ops
from gpujit.ir.parser import parse_graph
from gpujit.static_runtime.buckets import Bucket
from gpujit.support.config import config
from gpujit.support.errors import ArgumentError, InternalError, OpError, PaddingError
from gpujit.testing import assert_same_values, resolve_node
from tests.static_runtime.help import CORPUS, read_case

nn = gpujit.nn
Tensor = gpujit.Tensor
SIZES = (4, 16, 20)


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ids(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 11, shape)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3), nn.Softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, stride=2)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        return self.head(y.mean([2, 3]))


class Encoder(nn.Module):
    """Embeddings, self-attention with a mask of its own, and a network, as BERT has them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.places = nn.Embedding(12, 16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.pool = nn.Linear(16, 16)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        b, t = ids.size(0), ids.size(1)
        mask = ops.zeros([b, 1, 1, t]).masked_fill((ids == 0)[:, None, None, :], -10000.0)
        x = self.words(ids) + self.places(ops.arange(t).unsqueeze(0).expand(b, t))
        q, k, v = self.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        w = ops.softmax(ops.matmul(q, k.transpose(-1, -2)) / 2.0 + mask, -1)
        y = ops.matmul(w, v).transpose(1, 2).reshape(b, t, 16)
        x = self.norm(x + self.out(y))
        return x, ops.tanh(self.pool(x[:, 0]))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y, (h, c) = self.layer(x)
        return {"steps": y, "state": h + c, "last": self.head(y[:, -1])}


class Two(nn.Module):
    """Two inputs of one batch, a third without, and a result that has none."""

    def forward(self, x: Tensor, y: Tensor, scale: Tensor) -> tuple[Tensor, list[Tensor], int]:
        return x * scale + y, [scale * 2, x.transpose(0, 1), x[0]], x.size(1)



MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (Mlp, lambda n: (f32(n, 8),)),
    "conv": (Conv, lambda n: (f32(n, 3, 10, 10),)),
    "encoder": (Encoder, lambda n: (ids(n, 12),)),
    "lstm": (Lstm, lambda n: (f32(n, 5, 6),)),
    "two": (Two, lambda n: (f32(n, 4), f32(n, 4, seed=1), f32(4, seed=2))),
}
BUCKETS: dict[str, Any] = {"two": {"x": {0: SIZES}, 1: {0: SIZES}}}


def scripted(name: str) -> gpujit.ScriptModule:
    gpujit.manual_seed(3)
    return gpujit.script(MODELS[name][0]().eval())


def optimised(name: str, **options: Any) -> gpujit.ScriptModule:
    options.setdefault("buckets", BUCKETS.get(name, {0: {0: SIZES}}))
    return gpujit.optimize_for_inference(scripted(name), **options)


def same(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        same(list(got.values()), list(wanted.values()))
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            same(a, b)
    elif isinstance(wanted, np.ndarray):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    else:
        assert got == wanted


@pytest.mark.parametrize("name", MODELS)
def test_all_sizes_give_what_they_give_without_buckets(name: str) -> None:
    plain, padded = scripted(name), optimised(name)
    inputs = MODELS[name][1]
    for n in range(1, 21):
        same(padded(*inputs(n)), plain(*inputs(n)))
    stats = padded.plan_stats()
    assert (stats.made, stats.kept, stats.padded, stats.fitting, stats.alone) == (3, 3, 17, 3, 0)
    inputs_padded = 2 if name == "two" else 1
    assert stats.rows == inputs_padded * (sum(min(s for s in SIZES if s >= n) - n for n in range(1, 21)))
    assert stats.interpreted == 0


def test_results_are_those_of_the_same_plan_to_the_last_bit() -> None:
    padded = optimised("mlp", threads=1)
    x = f32(16, 8)
    whole = padded(x)
    for n in (7, 11, 15):
        assert np.array_equal(padded(x[:n]), whole[:n])


def test_results_do_not_change_when_buffers_are_filled_again() -> None:
    m = gpujit.optimize_for_inference(gpujit.script(Views()), buckets={0: {0: (8,)}})
    x = f32(5, 4)
    first = m(x)
    kept = [r.copy() for r in first]
    m(f32(5, 4, seed=9))
    same(list(first), kept)
    for result, wanted in zip(first, (x, x[:, 1:], x.T), strict=True):
        assert np.array_equal(result, wanted) and not np.shares_memory(result, x)


class Views(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x, x[:, 1:], x.t()


def test_empty_batches_and_sizes_above_all_have_plans_of_their_own() -> None:
    plain, padded = scripted("mlp"), optimised("mlp")
    for n in (0, 25, 30, 25, 3):
        same(padded(f32(n, 8)), plain(f32(n, 8)))
    stats = padded.plan_stats()
    assert (stats.made, stats.padded, stats.fitting, stats.alone) == (4, 1, 1, 3)
    assert "1 calls were padded to a bucket by 1 rows, 1 fitted one, 3 had sizes with plans of their own" in str(stats)
    text = padded.explain()
    assert "pads dim 0 of x to 4, 16, 20: 1 calls were padded by 1 rows in all, 1 fitted, 3 had sizes" in text


def test_powers_and_negative_dims() -> None:
    plain, padded = scripted("mlp"), optimised("mlp", buckets={"x": {-2: "powers"}})
    for n in (1, 2, 3, 5, 6, 8, 9, 33):
        same(padded(f32(n, 8)), plain(f32(n, 8)))
    assert padded.plan_stats().made == 6


class Tokens(nn.Module):
    """Rows along two dims, each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.layer = nn.Linear(6, 4)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return ops.softmax(self.layer(self.words(ids)), -1) * mask.unsqueeze(-1)


def test_several_dims_of_one_input() -> None:
    m = gpujit.script(Tokens())
    sizes = {0: (2, 8), 1: (16, 32)}
    padded = gpujit.optimize_for_inference(m, buckets={"ids": sizes, "mask": sizes})
    for b, t in ((1, 3), (2, 16), (7, 20), (8, 8), (5, 5)):
        given = ids(b, t), f32(b, t)
        with config(check_padding=True):
            same(padded(*given), m(*given))
    assert padded.plan_stats().made == 3


def test_inputs_of_other_layouts_and_given_results() -> None:
    plain, padded = scripted("mlp"), optimised("mlp")
    for x in (f32(8, 5).T, f32(10, 8)[::2], np.broadcast_to(f32(8), (3, 8)), f32(5, 16)[:, ::2]):
        same(padded(x), plain(x))
    out = np.full((5, 3), 7, np.float32)
    assert padded(f32(5, 8), out=out) is out
    same(out, plain(f32(5, 8)))
    with pytest.raises(ArgumentError, match=r"out\[0\] is float32\[4, 3\], the output is float32\[5, 3\]"):
        padded(f32(5, 8), out=np.empty((4, 3), np.float32))


class Same(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if x is y:
            return x + 1
        return x - 1


def test_one_array_given_twice_is_one_with_padding_too() -> None:
    m = gpujit.script(Same())
    x, y = f32(3, 4), f32(3, 4, seed=1)
    for buckets in ({0: {0: (4,)}, 1: {0: (4,)}}, {0: {0: (4,)}}):
        padded = gpujit.optimize_for_inference(m, buckets=buckets)
        same(padded(x, x), x + 1)
        same(padded(x, y), x - 1)
        stats = padded.plan_stats()
        assert (stats.padded, stats.alone) == ((2, 0) if len(buckets) == 2 else (1, 1))


def test_threads_share_plans_and_buffers() -> None:
    plain, padded = scripted("mlp"), optimised("mlp", threads=1)
    wanted = {(n, k): plain(f32(n, 8, seed=k)) for n in range(1, 21) for k in range(3)}
    faults: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in np.random.default_rng(k).permutation(np.arange(1, 21)).tolist() * 5:
                same(padded(f32(n, 8, seed=k)), wanted[n, k])
        except BaseException as fault:
            faults.append(fault)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not faults
    stats = padded.plan_stats()
    assert stats.made == 3 and stats.memory > 0


# Refusals ---------------------------------------------------------------------------------------------------------


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", ops.zeros([1]))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += x.size(0)
        return x * 2


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + ops.rand_like(x)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Centred, "aten::mean: it computes over dim 0"),
        (Noisy, "aten::rand_like draws random numbers"),
        (Counting, "writes"),
    ],
)
def test_what_is_not_proven_is_refused(kind: Any, text: str) -> None:
    m = gpujit.script(kind())
    padded = gpujit.optimize_for_inference(m, buckets={"x": {0: (4, 16)}})
    wanted = f"forward: dim 0 of x cannot be padded from 5 to 16: .*{text}"
    for _ in range(2):
        with pytest.raises(PaddingError, match=wanted) as error:
            padded(f32(5, 4))
    assert "test_buckets.py" in error.value.where and "HERE" in error.value.where
    # A size of a bucket is told at once that others could not be padded to it.
    with pytest.raises(PaddingError, match="dim 0 of x cannot be padded from 15 to 16"):
        gpujit.optimize_for_inference(m, buckets={"x": {0: (4, 16)}}, example_inputs=(f32(16, 4),))
    assert "aten" in padded.explain() and "cannot be padded" in padded.explain()
    # Larger ones are not padded.
    padded(f32(17, 4))


class Squeezing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.squeeze() * 2


def test_only_the_sizes_for_which_it_is_proven() -> None:
    padded = gpujit.optimize_for_inference(gpujit.script(Squeezing()), buckets={0: {0: (4,)}})
    same(padded(f32(3, 5)), f32(3, 5) * 2)
    with pytest.raises(PaddingError, match="aten::squeeze: it may leave out dim 0"):
        padded(f32(1, 5))


class Gated(nn.Module):
    """What it does with a size depends on an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mixes = False

    def forward(self, x: Tensor) -> Tensor:
        if self.mixes:
            return x - x.mean(0)
        return x * 2


def test_proofs_hold_as_long_as_attributes_do() -> None:
    m = gpujit.freeze(gpujit.script(Gated().eval()), preserved_attrs=["mixes"])
    padded = gpujit.optimize_for_inference(m, buckets={0: {0: (4,)}})
    same(padded(f32(3, 5)), f32(3, 5) * 2)
    padded.mixes = True
    with pytest.raises(PaddingError, match="aten::mean"):
        padded(f32(3, 5))
    padded.mixes = False
    same(padded(f32(3, 5)), f32(3, 5) * 2)


class Table(nn.Module):
    """Places of rows in a table that has as many."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places(ops.arange(x.size(0)))


def test_what_fails_with_padding_alone_runs_without() -> None:
    m = gpujit.script(Table())
    padded = gpujit.optimize_for_inference(m, buckets={0: {0: (4, 16)}})
    same(padded(f32(3, 4)), m(f32(3, 4)))
    for _ in range(2):
        same(padded(f32(5, 4)), m(f32(5, 4)))
    assert "forward runs without padding what fails with it: " in padded.explain()
    # What fails without is told so.
    with pytest.raises(OpError, match="out of range"):
        padded(f32(7, 4))


def test_faults_of_the_inputs_are_those_without_buckets() -> None:
    padded = optimised("encoder")
    with pytest.raises(OpError, match="out of range"):
        padded(np.full((3, 12), 99))
    same(padded(ids(3, 12)), scripted("encoder")(ids(3, 12)))
    with pytest.raises(PaddingError, match="x has 0 dims, and buckets for dim 0"):
        optimised("mlp")(np.float32(1))


def test_padded_results_are_compared_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpujit.static_runtime import padded as module

    with config(check_padding=True):
        same(optimised("mlp")(f32(5, 8)), scripted("mlp")(f32(5, 8)))
        fill = module._fill
        monkeypatch.setattr(module, "_fill", lambda b, x, c: fill(b, x * 2, c))
        with pytest.raises(InternalError, match="padded inputs give another result than those without padding"):
            optimised("mlp")(f32(5, 8))


# Options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buckets", "text"),
    [
        ([4], "buckets is a dict of dims and sizes for each input"),
        ({"x": (1, 2)}, "buckets is a dict of dims and sizes for each input"),
        ({"y": {0: (1,)}}, "there is no input 'y'; the inputs are x"),
        ({1: {0: (1,)}}, "there is no input 1"),
        ({"x": {"0": (1,)}}, "dims of x are ints"),
        ({"x": {0: ()}}, "sizes of x are positive ints"),
        ({"x": {0: (0, 4)}}, "sizes of x are positive ints"),
        ({"x": {0: "power"}}, "sizes of x are positive ints, such as"),
        ({"x": {0: (1,)}, 0: {0: (2,)}}, "dim 0 of x is named twice"),
    ],
)
def test_bad_buckets_are_refused(buckets: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        optimised("mlp", buckets=buckets)
    with pytest.raises(ArgumentError, match=text):
        StaticModule(scripted("mlp"), StaticModuleOptions(buckets=buckets))


def test_buckets_hold_sizes() -> None:
    some, powers = Bucket(0, "x", 0, (2, 8)), Bucket(0, "x", 0, None)
    assert [some.holding(n) for n in (1, 2, 3, 8, 9)] == [2, 2, 8, 8, None]
    assert [powers.holding(n) for n in (1, 2, 3, 4, 5, 1000)] == [1, 2, 4, 4, 8, 1024]
    assert [some.below(n) for n in (2, 8)] == [0, 2] and [powers.below(n) for n in (1, 8)] == [0, 4]


def test_static_modules_and_runtimes_pad_too() -> None:
    plain = scripted("mlp")
    static = StaticModule(plain, StaticModuleOptions(buckets={"x": {0: SIZES}}))
    runtime = static.runtime()
    managed = StaticModule(plain, StaticModuleOptions(buckets={"x": {0: SIZES}}, manage_output_tensors=True)).runtime()
    out = np.empty((6, 3), np.float32)
    for n in (3, 6, 20):
        for each in (static, runtime, managed):
            same(each(f32(n, 8)), plain(f32(n, 8)))
    assert runtime(f32(6, 8), out=out) is out
    same(out, plain(f32(6, 8)))
    assert static.plan_stats().made == 3
    assert static.memory_report(f32(5, 8)).outputs == 16 * 3 * 4
    assert runtime.profile((f32(5, 8),)) and runtime.benchmark((f32(5, 8),), main_runs=2).seconds > 0
    assert static.benchmark((f32(5, 8),), main_runs=2).nodes
    assert static.plan_stats().made == 3


def test_graphs_have_buckets_by_name_and_position() -> None:
    graph = parse_graph(
        "graph(%x : Tensor, %w : Tensor):\n  %y : Tensor = aten::mm(%x, %w)\n  return (%y)", resolve=resolve_node
    )
    for key in ("x", 0):
        static = StaticModule(graph, StaticModuleOptions(buckets={key: {0: (4, 8)}}))
        for n in (3, 4, 5, 9):
            np.testing.assert_allclose(static(f32(n, 6), f32(6, 2)), f32(n, 6) @ f32(6, 2), rtol=1e-4, atol=1e-5)
        assert static.plan_stats().made == 3


@pytest.mark.parametrize("compile", ["background", "never"])
def test_other_ways_to_compile(compile: str) -> None:
    padded = optimised("mlp", compile=compile)
    padded.warmup([(f32(16, 8),)])
    same(padded(f32(9, 8)), scripted("mlp")(f32(9, 8)))
    assert padded.plan_stats().padded == 1


RIGHT = (
    "BertModel_trace", "CLIPVisionModel_trace", "ConvNextModel_trace", "GPT2LMHeadModel_trace", "SwinModel_trace",
    "bert_trace", "bfloat16", "containers", "convs_trace", "gpt_trace", "gru_trace", "half", "lstm_script",
    "mobilenet_trace", "resnet_script", "sdpa",
)  # fmt: skip
REFUSED = ("aliasing_trace", "embedding_bag", "interface_state", "loop_rnn", "nms_postprocess", "quantized_dynamic")


@pytest.mark.parametrize("name", RIGHT + REFUSED)
def test_models_are_right_or_refused(name: str) -> None:
    """Compared by the self-check as well."""
    path = CORPUS / f"{name}.pt"
    module, inputs = gpujit.load(path).eval(), read_case(path)
    buckets = {i: {0: (x.shape[0] + 2,)} for i, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.ndim}
    assert padded_is_right(module, inputs, buckets) == (name in RIGHT)


def padded_is_right(module: gpujit.ScriptModule, inputs: Sequence[Any], buckets: Any) -> bool:
    with warnings.catch_warnings(), config(check_padding=True):
        warnings.simplefilter("ignore")
        padded = gpujit.optimize_for_inference(module, buckets=buckets, compile="never")
        try:
            got = padded(*inputs)
        except PaddingError:
            return False
        assert_same_values(got, module(*inputs), "result", rtol=2e-3, atol=2e-3)
        return padded.plan_stats().padded == 1
