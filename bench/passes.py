"""Every pass pipeline on every model of a folder: the same results as the interpreter, and what is left of the graph.

Usage: python bench/passes.py FOLDER ... --json OUT [--packages FOLDER] [--counts TABLE] [--torch] [--only NAME]

For each model, each time freshly loaded, and called at least twice with its state carried along:

- ``optimised``: each pipeline of gpujit.passes.pipeline on the inlined graph of ``forward``;
- ``freeze`` with and without folds that round;
- ``specialise`` for the inputs of each call (anew when its guards do not hold), then the pipeline "specialised".

After every pass that changed something the graph is verified, and its text parsed and printed again. Results, errors
and the state left in the module are compared with the interpreter's: ``exact``; ``close`` within tests/compare.py;
``rounding`` when only a run in float64 shows that no more than rounding differs. Those that promise it must be exact.

--packages: a folder as ci/fetch_models.sh fills it, with silero_vad.jit and the accentor files.
--counts: a table with columns ``name`` and ``nodes_frozen``, the nodes that torch.jit.freeze leaves.
--torch: ask torch.jit.freeze for its count (optimize_numerics off, as in the table) where it is installed.

Exit code 1 when a result differs or an invariant is broken.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import copy
import csv
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpus import SAME, compare, distance, floats, read_case

import gpujit
from gpujit.ir.graph import Graph
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from gpujit.passes import pipeline
from gpujit.passes.base import Pass
from gpujit.passes.specialise.main import Specialised, key_of, specialise
from gpujit.runtime.values import bind_arguments
from tests.compare import assert_same
from tests.models import test_accentor
from tests.models.speech import speech

CALLS = 2


@dataclass(frozen=True)
class Case:
    """A model: how to load it, and the inputs of each call of one of its methods."""

    name: str
    load: Callable[[], gpujit.ScriptModule]
    calls: Sequence[Sequence[Any]]
    method: str = "forward"
    file: Path | None = None


# ------------------------------------------------------------------------------------------------------------- cases


def folder_cases(folder: Path) -> Iterator[Case]:
    """The pairs of NAME.pt and NAME.npz below a folder."""
    for path in sorted(folder.rglob("*.pt")):
        if path.with_suffix(".npz").exists():
            inputs, _ = read_case(path)
            name = path.relative_to(folder).with_suffix("").as_posix()
            yield Case(name, lambda path=path: gpujit.load(path), [inputs] * CALLS, file=path)


def package_cases(folder: Path) -> Iterator[Case]:
    """The voice detector at both rates, chunk by chunk and whole, and the stress models."""
    silero = folder / "silero_vad.jit"
    if silero.exists():
        for rate, size in ((16000, 512), (8000, 256)):
            audio = speech(rate, 2)[None]
            chunks = [(audio[:, i * size : (i + 1) * size], rate) for i in range(6)]
            yield Case(f"silero_vad_{rate}", lambda: gpujit.load(silero), chunks, file=silero)
            whole = [(audio, rate)] * CALLS
            yield Case(f"silero_vad_{rate}_whole", lambda: gpujit.load(silero), whole, "audio_forward")
    test_accentor.FOLDER = folder
    for name in test_accentor.SENTENCES:
        if (folder / f"{name}.pt").exists():
            for key, calls in test_accentor.EXPECTED[name]["calls"].items():
                inputs = [c["inputs"] for c in calls[:4]]
                if key != "accentor.model":
                    inputs = [[np.array(a, np.int64) for a in call] for call in inputs]
                yield Case(f"{name}/{key}", lambda name=name, key=key: test_accentor.load(name)[key], inputs)


# ----------------------------------------------------------------------------------------------- running and comparing


@dataclass
class Outcome:
    """Each call's result or the text of its error, and the state left in the module."""

    results: list[Any]
    state: dict[str, Any]


def bound(module: gpujit.ScriptModule, method: str, inputs: Sequence[Any]) -> list[Any]:
    """Run-time values of a call; the module first."""
    function = module._object.type.methods[method]
    return [module._object, *bind_arguments(function.schema, tuple(copy.deepcopy(list(inputs))), {}, skip=1)]


def run_graph(module: gpujit.ScriptModule, graph: Graph) -> Callable[[list[Any]], Any]:
    """What runs a graph on run-time values."""
    code = module._program.lowerer.graph_code(graph)

    def run(values: list[Any]) -> Any:
        with np.errstate(all="ignore"):
            return module._program.interpreter.run(code, values)

    return run


def outcome(case: Case, module: gpujit.ScriptModule, run: Callable[[list[Any]], Any]) -> Outcome:
    """What all calls give. Errors that the program raises are results."""
    results = []
    for inputs in case.calls:
        try:
            # Later calls may write into what earlier ones returned.
            results.append(copy.deepcopy(run(bound(module, case.method, inputs))))
        except gpujit.ScriptRuntimeError as error:
            results.append(f"{type(error).__name__}: {error.message}")
    state = {}
    for path, inner in module.named_modules():
        for name, slot in inner._object.type.slot_of.items():
            value = inner._object.slots[slot]
            if isinstance(value, (np.ndarray, bool, int, float, str)):
                state[f"{path}.{name}"] = copy.deepcopy(value)
    return Outcome(results, state)


def equal(got: Any, want: Any) -> bool:
    """Whether two values are the same to the last bit."""
    if isinstance(want, np.ndarray):
        if not isinstance(got, np.ndarray) or (got.dtype, got.shape) != (want.dtype, want.shape):
            return False
        return bool(((got == want) | ((got != got) & (want != want))).all())
    if isinstance(want, (list, tuple)):
        return type(got) is type(want) and len(got) == len(want) and all(map(equal, got, want))
    if isinstance(want, dict):
        return isinstance(got, dict) and list(got) == list(want) and all(equal(got[k], want[k]) for k in want)
    return type(got) is type(want) and (got == want or (got != got and want != want) or hasattr(want, "slots"))


def difference(got: Outcome, want: Outcome, *, with_state: bool) -> str:
    """``exact``, ``close``, or what differs."""
    if equal(got.results, want.results) and (not with_state or equal(got.state, want.state)):
        return "exact"
    try:
        for i, (g, w) in enumerate(zip(got.results, want.results, strict=True)):
            try:
                assert_same(g, w, f"call {i + 1}")
            except AssertionError:
                compare(g, w)
        if with_state:
            assert_same(got.state, want.state, "state")
    except (AssertionError, TypeError) as error:
        return f"MISMATCH by {distance(floats(got.results), floats(want.results)):.1e}: {str(error)[:500]}"
    return "close"


def wide(value: Any) -> Any:
    """A value with float64 in place of float32."""
    if isinstance(value, (list, tuple)):
        return type(value)(wide(v) for v in value)
    return value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value


def widened(case: Case) -> Case:
    """The case in float64."""

    def load() -> gpujit.ScriptModule:
        module = case.load()
        for owner in module.modules():
            for name, value in (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)):
                setattr(owner, name, wide(value))
        return module

    return Case(case.name, load, [wide(c) for c in case.calls], case.method)


# ------------------------------------------------------------------------------------------------------ what is checked


def check_text(graph: Graph) -> None:
    """Raises AssertionError when the text does not come back from parsing."""
    constants: list[Any] = []
    text = print_graph(graph, constants=constants)
    again = print_graph(parse_graph(text, constants=constants), constants=[])
    if again != text:
        line = next((a, b) for a, b in zip(text.splitlines(), again.splitlines(), strict=False) if a != b)
        raise AssertionError(f"the text does not come back: {line}")


@contextmanager
def every_pass_checked() -> Iterator[None]:
    """Verify the graph, and parse its text, after every pass that changed it."""
    # Not the switch ``verify``, which also copies the graph before each pass: these graphs are large.
    call = Pass.__call__

    def checked(self: Pass, graph: Graph) -> bool:
        changed = call(self, graph)
        if changed:
            try:
                verify(graph)
                check_text(graph)
            except Exception as error:
                raise AssertionError(f"after {self.name}: {error}") from error
        return changed

    with patch.object(Pass, "__call__", checked):
        yield


def optimised(case: Case, name: str, row: dict[str, Any]) -> Outcome:
    """The outcome of the method's inlined graph after a pipeline."""
    module = case.load()
    graph = module.methods[case.method].inlined_graph
    row["nodes_before"], start = count(graph), time.perf_counter()
    pipeline.run(graph, name)
    row["seconds"] = time.perf_counter() - start
    row["nodes"] = count(graph)
    return outcome(case, module, run_graph(module, graph))


def frozen(case: Case, numerics: bool, row: dict[str, Any]) -> Outcome:
    """The outcome of the module frozen."""
    module = case.load().eval()
    start = time.perf_counter()
    made = gpujit.freeze(module, [case.method] if case.method != "forward" else None, optimize_numerics=numerics)
    row["seconds"] = time.perf_counter() - start
    graph = made.methods[case.method].graph
    row["nodes"] = count(graph)
    return outcome(case, made, run_graph(made, graph))


def specialised(case: Case, row: dict[str, Any]) -> Outcome:
    """The outcome of graphs specialised for the inputs; kept from call to call as long as their guards hold."""
    module = case.load()
    graph = module.methods[case.method].inlined_graph
    made: list[tuple[Specialised, Callable[[list[Any]], Any]]] = []
    row.update(nodes_before=count(graph), seconds=0.0, specialise_seconds=0.0, left=[])

    def run(values: list[Any]) -> Any:
        for found, code in made:
            if found.check(values) is None:
                return code(values)
        start = time.perf_counter()
        found = specialise(graph, key_of(graph, values))
        row["specialise_seconds"] = max(row["specialise_seconds"], time.perf_counter() - start)
        row["nodes_specialised"] = count(found.graph)
        row["left"] = [f"{left.node.kind}: {left.reason}" for left in found.left]
        check_text(found.graph)
        start = time.perf_counter()
        pipeline.run(found.graph, "specialised")
        row["seconds"] = max(row["seconds"], time.perf_counter() - start)
        row["nodes"], row["plans"] = count(found.graph), len(made) + 1
        made.append((found, run_graph(module, found.graph)))
        return made[-1][1](values)

    return outcome(case, module, run)


def count(graph: Graph) -> int:
    """Nodes of a graph, those in blocks and constants included, as the table counts them."""
    return sum(1 for _ in graph.all_nodes())


def torch_nodes(path: Path) -> int | None:
    """Nodes that torch.jit.freeze leaves of a file; None when it cannot."""
    import torch

    try:
        graph = torch.jit.freeze(torch.jit.load(path).eval(), optimize_numerics=False).graph
    except Exception:
        return None
    blocks, found = [graph], 0
    for block in blocks:
        for node in block.nodes():
            found += 1
            blocks.extend(node.blocks())
    return found


WAYS: dict[str, Callable[[Case, dict[str, Any]], Outcome]] = {
    **{name: lambda case, row, name=name: optimised(case, name, row) for name in pipeline.PIPELINES},
    "frozen": lambda case, row: frozen(case, False, row),
    "frozen_numerics": lambda case, row: frozen(case, True, row),
    "specialise": specialised,
}
del WAYS["specialised"]


def check(case: Case, ways: Sequence[str]) -> dict[str, Any]:
    """A row for each of these ways of optimising the model: ``result``, seconds, nodes."""
    rows: dict[str, Any] = {}
    module = case.load()
    graph = module.methods[case.method].graph
    start = time.perf_counter()
    want = outcome(case, module, run_graph(module, graph))
    rows["interpreted"] = {"result": "exact", "seconds": time.perf_counter() - start}
    for name in ways:
        way = WAYS[name]
        row: dict[str, Any] = {}
        rows[name] = row
        try:
            got = way(case, row)
            with_state = not name.startswith("frozen")
            row["result"] = difference(got, want, with_state=with_state)
            if row["result"].startswith("MISMATCH"):
                exact = widened(case)
                double = exact.load()
                peer = outcome(exact, double, run_graph(double, double.methods[case.method].graph))
                result = way(exact, {})
                apart = distance(floats(result.results), floats(peer.results))
                scale = max((float(np.abs(x).max()) for x in floats(peer.results) if x.size), default=1.0)
                row["apart_in_float64"] = apart
                if apart <= SAME * max(1.0, scale):
                    row["result"] = "rounding"
            if name in pipeline.EXACT and row["result"] != "exact":
                row["result"] = f"NOT EXACT: {row['result']}"
            if name != "frozen":  # whose passes are some of those of "frozen_numerics"
                with every_pass_checked(), patch(f"{__name__}.outcome", lambda *_: None):
                    way(case, {}) if name != "specialise" else checked_specialisation(case)
        except Exception as error:
            row["result"] = f"ERROR {type(error).__name__}: {str(error)[:3000]}"
            row["trace"] = traceback.format_exc()[-2500:]
    return rows


def checked_specialisation(case: Case) -> None:
    """Specialise for the first call alone, and run the pipeline."""
    module = case.load()
    graph = module.methods[case.method].inlined_graph
    pipeline.run(specialise(graph, key_of(graph, bound(module, case.method, case.calls[0]))).graph, "specialised")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--json", type=Path, required=True, help="a line for each model is added to this file")
    parser.add_argument("--packages", type=Path, help="folder of silero_vad.jit and accentor*.pt")
    parser.add_argument("--counts", type=Path, help="table of the nodes that torch.jit.freeze leaves")
    parser.add_argument("--torch", action="store_true", help="ask torch.jit.freeze for its count of nodes")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--ways", default="", help=f"some of {','.join(WAYS)}")
    arguments = parser.parse_args()
    counts = {}
    if arguments.counts:
        with arguments.counts.open(encoding="utf-8") as table:
            rows = csv.DictReader(table, delimiter="\t")
            counts = {r["name"]: int(r["nodes_frozen"]) for r in rows if r["nodes_frozen"]}
    cases = [c for f in arguments.folders for c in folder_cases(f)]
    if arguments.packages:
        cases += package_cases(arguments.packages)
    totals: Counter[str] = Counter()
    for case in cases:
        if arguments.only not in case.name:
            continue
        rows = check(case, arguments.ways.split(",") if arguments.ways else list(WAYS))
        row = {"name": case.name, "ways": rows, "table": counts.get(case.name)}
        if arguments.torch and case.file is not None:
            row["torch"] = torch_nodes(case.file)
        with arguments.json.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        results = {name: r["result"].split(" ")[0].rstrip(":") for name, r in rows.items()}
        faults = {n: rows[n]["result"][:300] for n, r in results.items() if r.isupper()}
        totals["models"] += 1
        totals["wrong"] += bool(faults)
        totals["left something"] += bool(rows.get("specialise", {}).get("left"))
        shown = " ".join(f"{n}:{r}" for n, r in results.items() if n != "interpreted")
        nodes = f"frozen {rows.get('frozen', {}).get('nodes')} of {row['table']}/{row.get('torch')}"
        print(f"{case.name}  {shown}  {nodes}  {faults or ''}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in totals.items()) or "no models there")
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
