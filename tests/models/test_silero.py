"""A scripted, stateful model nobody here wrote: the voice detector of the package silero-vad, a minute of audio.

The model is not part of the repository: GPUJIT_TEST_MODELS names a folder that ci/fetch_models.sh filled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.verify import verify
from tests.models.speech import speech

PATH = Path(os.environ.get("GPUJIT_TEST_MODELS", ".")) / "silero_vad.jit"
EXPECTED = np.load(Path(__file__).with_name("silero.npz"))
SECONDS = 60

pytestmark = pytest.mark.skipif(not PATH.exists(), reason="silero_vad.jit is not there; ci/fetch_models.sh gets it")


@pytest.fixture(scope="module")
def model() -> gpujit.ScriptModule:
    return gpujit.load(PATH)


@pytest.mark.parametrize(("rate", "size"), [(16000, 512), (8000, 256)])
def test_a_minute_chunk_by_chunk(model: gpujit.ScriptModule, rate: int, size: int) -> None:
    audio = speech(rate, SECONDS)[None]
    model.reset_states()
    got = np.array([model(audio[:, i : i + size], rate)[0, 0] for i in range(0, audio.shape[1] - size + 1, size)])
    expected = EXPECTED[f"chunks_{rate}"]
    # A detector that always says the same would prove nothing.
    assert 0.2 < (expected > 0.5).mean() < 0.8
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(model._state, EXPECTED[f"state_{rate}"], atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_minute_at_once(model: gpujit.ScriptModule, rate: int) -> None:
    model.reset_states()
    got = model.audio_forward(speech(rate, SECONDS)[None], rate)
    np.testing.assert_allclose(got[0], EXPECTED[f"whole_{rate}"], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("rate", "size"), [(16000, 512), (8000, 256)])
def test_another_batch_size_starts_anew(model: gpujit.ScriptModule, rate: int, size: int) -> None:
    audio = speech(rate, SECONDS)
    pair = np.stack([audio[: 4 * size], audio[size : 5 * size]])
    model(audio[None, :size], rate)
    got = np.stack([model(pair[:, i * size : (i + 1) * size], rate)[:, 0] for i in range(4)])
    np.testing.assert_allclose(got, EXPECTED[f"pair_{rate}"], atol=1e-5, rtol=0)
    assert model._last_batch_size == 2


def test_the_models_own_complaints_name_their_lines(model: gpujit.ScriptModule) -> None:
    with pytest.raises(gpujit.Error, match="Input audio chunk is too short") as caught:
        model(np.zeros((1, 100), np.float32), 16000)
    text = str(caught.value)
    assert 'File "code/__torch__/vad/model/vad_annotator.py", line' in text
    assert "original code" in text and "raise ValueError" in text
    assert caught.value.class_name == "builtins.ValueError"


def test_graphs_verify_and_their_text_parses_back(model: gpujit.ScriptModule) -> None:
    for _, module in model.named_modules():
        for method in module.methods.values():
            for graph in (method.graph, method.inlined_graph):
                verify(graph)
                constants: list[Any] = []
                text = print_graph(graph, constants=constants)
                assert print_graph(parse_graph(text, constants=constants), constants=[]) == text
