"""What gpujit is compared with: the same model under torch.jit, torch.compile and ONNX Runtime, as functions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from model_cases import CASES, CONTEXT, RATE, built

Call = Callable[[], Any]


def _tensors(given: list[Any]) -> list[Any]:
    import torch

    return [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in given]


def gpujit_call(path: Path, given: list[Any]) -> Call:
    """The module, frozen and planned."""
    import gpujit

    module = gpujit.optimize_for_inference(gpujit.load(path))
    return lambda: module(*given)


def jit_call(path: Path, given: list[Any]) -> Call:
    """torch.jit, frozen, and optimised for inference if that is faster: its oneDNN layouts are not for all models."""
    import torch

    from gpujit.cli.bench_worker import shortest

    tensors = _tensors(given)
    loaded = torch.jit.load(path).eval()
    # A module that writes its attributes computes something else when it is frozen: silero keeps its state.
    if path.stem == "silero":
        return lambda: loaded(*tensors)
    frozen = torch.jit.freeze(loaded)
    modules = [frozen]
    with suppress(RuntimeError):
        modules.append(torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.load(path).eval())))
    module = min(modules, key=lambda m: shortest(lambda: m(*tensors)))
    return lambda: module(*tensors)


def compile_call(path: Path, given: list[Any]) -> Call | None:
    """torch.compile on the model in Python; None where there is no such model."""
    import torch

    if path.stem not in CASES:
        return None
    model, _ = built(path.stem)
    # The weights of the file, whatever the packages made of the seed; a trace also keeps buffers that are not saved.
    missing = model.load_state_dict(torch.jit.load(path).state_dict(), strict=False).missing_keys
    if missing:
        raise RuntimeError(f"{path} holds no {', '.join(missing)}")
    compiled = torch.compile(model)
    tensors = _tensors(given)
    return lambda: compiled(*tensors)


def onnx_call(path: Path, given: list[Any], threads: int) -> Call | None:
    """ONNX Runtime with all its optimisations; None without a file."""
    import onnxruntime

    file = path.with_suffix(".onnx")
    if not file.exists():
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    if path.stem == "silero":
        return _silero(session, given[0])
    feed = dict(zip((i.name for i in session.get_inputs()), given, strict=True))
    return lambda: session.run(None, feed)


def _silero(session: Any, audio: np.ndarray) -> Call:
    """The detector as its package runs it: state and the end of the chunk before are kept outside the file."""
    state = np.zeros((2, 1, 128), np.float32)
    context = np.zeros((1, CONTEXT), np.float32)
    rate = np.array(RATE)

    def call() -> Any:
        nonlocal state, context
        joined = np.concatenate([context, audio], axis=1)
        found, state = session.run(None, {"input": joined, "state": state, "sr": rate})
        context = joined[:, -CONTEXT:]
        return found

    return call
