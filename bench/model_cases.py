"""Models of usual size for benchmarks, with random weights: made with PyTorch, kept as TorchScript and as ONNX files.

A case is made once into a folder and read from there by every process that measures it:

    python bench/model_cases.py FOLDER [--only resnet,bert] [--silero silero_vad.jit]

Batch norms get running statistics from a random batch, so that deep nets keep numbers of usual size.
"""

from __future__ import annotations

import argparse
import io
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

RATE = 16000
# What silero looks back at before each chunk; its ONNX file wants that in front of it.
CONTEXT = 64


def image(*shape: int) -> Callable[[], list[np.ndarray]]:
    return lambda: [np.random.default_rng(0).standard_normal(shape).astype(np.float32)]


def tokens(count: int) -> Callable[[], list[np.ndarray]]:
    return lambda: [np.random.default_rng(0).integers(0, 1000, (1, count))]


def mlp() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))


def lstm() -> Any:
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(256, 256, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    return Lstm()


def deep_wide() -> Any:
    """The model that PyTorch's Static Runtime is measured with."""
    import torch
    from torch import nn

    class DeepAndWide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mu = nn.Parameter(torch.randn(1, 50))
            self.sigma = nn.Parameter(torch.randn(1, 50))
            self.fc_w = nn.Parameter(torch.randn(1, 51))
            self.fc_b = nn.Parameter(torch.randn(1))

        def forward(self, ad: Any, user: Any, wide: Any) -> Any:
            wide_normalised = torch.clamp((wide + self.mu) * self.sigma, -10.0, 10.0)
            dp = torch.flatten(torch.bmm(ad, user.transpose(1, 2)), 1)
            inputs = torch.cat([dp, wide_normalised], 1)
            return torch.sigmoid(torch.addmm(self.fc_b, inputs, self.fc_w.t()))

    return DeepAndWide()


def deep_wide_inputs() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(s, dtype=np.float32) for s in ((1, 1, 32), (1, 1, 32), (1, 50))]


def vision(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return make


def deit_tiny() -> Any:
    import timm

    return timm.create_model("deit_tiny_patch16_224", pretrained=False)


def text(model: str, config: str, **sizes: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers
        from torch import nn

        settings = getattr(transformers, config)(**sizes)
        settings.use_cache = False

        class First(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = getattr(transformers, model)(settings)

            def forward(self, ids: Any) -> Any:
                return self.inner(ids, return_dict=False)[0]

        return First()

    return make


_BERT = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
_GPT2 = {"n_embd": 384, "n_layer": 6, "n_head": 6}
_PICTURE = image(1, 3, 224, 224)
Make = tuple[Callable[[], Any], Callable[[], list[np.ndarray]]]
CASES: dict[str, Make] = {
    "deep_wide": (deep_wide, deep_wide_inputs),
    "mlp_b1": (mlp, image(1, 256)),
    "mlp_b64": (mlp, image(64, 256)),
    "lstm": (lstm, image(1, 50, 256)),
    **{
        name: (vision(name), _PICTURE)
        for name in ("resnet18", "resnet50", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "convnext_tiny")
    },
    "deit_tiny": (deit_tiny, _PICTURE),
    "swin_t": (vision("swin_t"), _PICTURE),
    "bert": (text("BertModel", "BertConfig", **_BERT), tokens(128)),
    "distilbert": (text("DistilBertModel", "DistilBertConfig"), tokens(128)),
    "gpt2": (text("GPT2Model", "GPT2Config", **_GPT2), tokens(64)),
}
NAMES = ("silero", *CASES)


def built(name: str) -> tuple[Any, list[np.ndarray]]:
    """The model in eval mode, and its inputs. Raises ImportError for a package that is not there."""
    import torch
    from torch import nn

    make, inputs = CASES[name]
    torch.manual_seed(0)
    model, given = make(), inputs()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if norms:
        model.train()
        for norm in norms:
            norm.momentum = None
        with torch.no_grad():
            model(torch.randn(4, *given[0].shape[1:]))
    model.eval()
    return model, given


def traced(model: Any, given: list[np.ndarray]) -> bytes:
    """The archive of a model as torch.jit.trace sees it."""
    import torch

    buffer = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(model, tuple(map(torch.from_numpy, given)), check_trace=False), buffer)
    return buffer.getvalue()


def exported(model: Any, given: list[np.ndarray]) -> bytes | str:
    """The model as ONNX, by whichever exporter can; else why none can."""
    import torch

    reasons = []
    for dynamo in (True, False):
        buffer = io.BytesIO()
        quiet = io.StringIO()
        try:
            with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
                warnings.simplefilter("ignore")
                program = torch.onnx.export(
                    model, tuple(map(torch.from_numpy, given)), None if dynamo else buffer, dynamo=dynamo
                )
                if dynamo:
                    program.save(buffer)
            return buffer.getvalue()
        except Exception as fault:
            reasons.append(f"{type(fault).__name__}: {str(fault)[:200]!r}")
    return "; ".join(reasons)


def write(folder: Path, wanted: list[str], silero: Path | None) -> dict[str, str]:
    """Make what is missing of NAME.pt, NAME.npz and NAME.onnx; what could not be made, with the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    left_out: dict[str, str] = {}
    for name in filter(lambda n: any(w in n for w in wanted), NAMES):
        path = folder / f"{name}.pt"
        if path.exists():
            continue
        if name == "silero":
            if silero is None or not silero.exists():
                left_out[name] = "no file was given (ci/fetch_models.sh fetches it)"
                continue
            shutil.copy(silero, path)
            audio = (np.random.default_rng(0).standard_normal((1, 512)) * 0.1).astype(np.float32)
            np.savez(path.with_suffix(".npz"), audio)
            with suppress(FileNotFoundError):
                shutil.copy(silero.with_suffix(".onnx"), path.with_suffix(".onnx"))
            continue
        try:
            model, given = built(name)
        except ImportError as fault:
            left_out[name] = str(fault)
            continue
        np.savez(path.with_suffix(".npz"), *given)
        archive = traced(model, given)
        onnx = exported(model, given)
        if isinstance(onnx, bytes):
            path.with_suffix(".onnx").write_bytes(onnx)
        else:
            print(f"{name} has no ONNX file: {onnx}", file=sys.stderr)
        path.write_bytes(archive)
    logging.disable(logging.NOTSET)
    return left_out


def read(folder: Path, wanted: list[str]) -> Iterator[tuple[str, Path, list[Any]]]:
    """Name, archive and inputs of the cases of a folder."""
    for name in filter(lambda n: any(w in n for w in wanted), NAMES):
        path = folder / f"{name}.pt"
        if path.exists():
            with np.load(path.with_suffix(".npz")) as stored:
                given = [stored[k] for k in stored.files]
            yield name, path, [*given, RATE] if name == "silero" else given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--silero", type=Path, help="silero_vad.jit; its silero_vad.onnx beside it is taken too")
    arguments = parser.parse_args()
    left_out = write(arguments.folder, arguments.only.split(","), arguments.silero)
    for name, reason in left_out.items():
        print(f"{name} is left out: {reason}")


if __name__ == "__main__":
    main()
