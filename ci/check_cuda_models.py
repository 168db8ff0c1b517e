"""Compiles every kernel of whole models' plans for sm_80 and sm_90, as ``gpujit warm`` does, and checks the code.

    python ci/check_cuda_models.py [--models DIR] [NAME ...]

Needs no GPU and no driver. Nets of the shape of resnet18, BERT and DeiT are built here, in float32 and float16; DIR has
silero_vad.jit (``ci/fetch_models.sh``). Checked as in ``check_cuda_kernels``; kernels that models share, once.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import gpu_models
from check_cuda_kernels import CEILING, faults

from gpujit import nn, script
from gpujit.cli import warm
from gpujit.cli.inputs import Chosen, chosen
from gpujit.kernels import cuda_cache
from gpujit.kernels.cuda_compile import instructions, resources
from gpujit.kernels.launches import DeviceKernel
from gpujit.static_runtime.device_warm import Found
from gpujit.support.config import config

ARCHITECTURES = {"sm_80": (8, 0), "sm_90": (9, 0)}
# Attention keeps a tile of products in registers: two blocks of a multiprocessor's are enough for it.
MOST = 255
BUILT = ("resnet18", "bert_small", "deit_toy", "resnet18:half", "bert_small:half")
HALF = ":half"
SILERO = "silero_vad.jit"
_BYTES = {"8": 1, "6": 2, "2": 4, "4": 8}


def widest(kernel: DeviceKernel, word: str) -> int:
    """The bytes of the widest load (``vload``) or store (``vstore``) of a source; 0 for scalar ones alone."""
    head = re.search(r"def kernel\((.*)\):", kernel.source)
    assert head is not None
    types = dict(zip(head[1].split(", "), kernel.arguments, strict=True))
    found = 0
    for count, name in re.findall(rf"\b{word}([248])(?:_\w+)?\((\w+)", kernel.source):
        # ``*float32``: the last digit of the type tells its size; ``*bool`` is kept as uint8.
        found = max(found, min(16, int(count) * _BYTES[types[name][-1]]))
    return found


def check(name: str, kernel: DeviceKernel, operators: str, architecture: str) -> bool:
    """Whether a kernel's code for a GPU passes; its line is printed."""
    compiled = cuda_cache.cubin(kernel, ARCHITECTURES[architecture])
    found, code = resources(compiled), instructions(compiled)
    load, store = widest(kernel, "vload"), widest(kernel, "vstore")
    float64 = any("float64" in t for t in kernel.arguments)
    most = MOST if "attention" in kernel.label else CEILING
    wrong = faults(found, code, kernel.block, float64, load, store, most)
    verdict = "ok" if not wrong else "FAILS: " + "; ".join(wrong)
    print(
        f"{name:15} {architecture}  {found.registers:4} registers {len(code):5} instructions {load:3}/{store:<3} bytes "
        f"wide  {kernel.block:4} threads  {verdict}  {operators[:60]}",
        flush=True,
    )
    return not wrong


def model(name: str, folder: Path | None, scratch: Path) -> Chosen:
    """A model and its inputs, from a file as for the command."""
    command = argparse.ArgumentParser()
    warm.add_arguments(command)
    if name == SILERO:
        assert folder is not None
        return chosen(command.parse_args([str(folder / SILERO), "1x512", "int=16000"]))
    made, inputs = gpu_models.make(name.removesuffix(HALF), nn, nn.functional)
    module = script(made)
    if name.endswith(HALF):
        module.half()
        inputs = [(shape, dtype.replace("float32", "float16")) for shape, dtype in inputs]
    path = scratch / f"{name.replace(':', '-')}.pt"
    module.save(path)
    shapes = ["x".join(map(str, (1, *shape))) + f":{dtype}" for shape, dtype in inputs]
    return chosen(command.parse_args([str(path), *shapes]))


def check_model(name: str, needs: dict[str, Found], seen: set[tuple[DeviceKernel, str]]) -> bool:
    """Whether all kernels of a model's plans pass that were not seen yet."""
    report: dict[str, list[dict[str, object]]] = {"architectures": [], "failures": []}
    warm.warm_gpus(needs, ARCHITECTURES, report)
    for row in report["architectures"]:
        made = f"{row['kernels']} kernels, {row['compiled']} compiled in {row['seconds']} s"
        print(f"{name:15} {row['architecture']}  {made}")
    for fault in report["failures"]:
        print(f"{name:15} {fault['architecture']}  FAILS: {fault['group']} at {fault['place']}: {fault['reason']}")
    first = next(iter(needs.values()))
    for each in first.host:
        print(f"{name:15} on the host: {each.operators}: {each.reason}")
    passed = not report["failures"] and not report["unplanned"]
    if not first.kernels:
        print(f"{name:15} FAILS: its plans have no kernels: {'; '.join(first.unplanned)}")
        return False
    refused = {(f["architecture"], f["group"]) for f in report["failures"]}
    for architecture, found in needs.items():
        for launched in found.kernels.values():
            plain = replace(launched.kernel, label="")
            if (plain, architecture) in seen or (architecture, launched.operators) in refused:
                continue
            seen.add((plain, architecture))
            passed = check(name, launched.kernel, launched.operators, architecture) and passed
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=[], help="models to check; by default all")
    parser.add_argument("--models", type=Path, help="folder with silero_vad.jit; without it silero is left out")
    arguments = parser.parse_args()
    started = time.perf_counter()
    has_silero = arguments.models is not None and (arguments.models / SILERO).exists()
    names = arguments.names or [*BUILT, *([SILERO] if has_silero else [])]
    if not has_silero:
        print(f"left out: {SILERO} is in no folder that was given (ci/fetch_models.sh fetches it)")
    seen: set[tuple[DeviceKernel, str]] = set()
    passed = True
    with tempfile.TemporaryDirectory() as scratch, config(cache_dir=str(Path(scratch, "kernels"))):
        for name in names:
            needs = warm.needed(model(name, arguments.models, Path(scratch)), ARCHITECTURES)
            passed = check_model(name.partition("_vad")[0], needs, seen) and passed
    kernels = f"{len({k for k, _ in seen})} kernels for {' and '.join(ARCHITECTURES)}"
    print(f"{kernels} in {time.perf_counter() - started:.0f} s: {'all pass' if passed else 'SOME FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
