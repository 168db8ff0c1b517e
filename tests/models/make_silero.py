"""Makes tests/models/silero.npz: what PyTorch gives for the voice detector that the package silero-vad ships.

Usage: python -m tests.models.make_silero silero_vad.jit   (needs torch; the model comes with ci/fetch_models.sh)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from tests.models.speech import speech

SECONDS = 60


def main(path: str) -> None:
    torch.set_num_threads(1)
    model = torch.jit.load(path)
    found: dict[str, np.ndarray] = {}
    with torch.no_grad():
        for rate, size in ((16000, 512), (8000, 256)):
            audio = torch.from_numpy(speech(rate, SECONDS))
            model.reset_states()
            chunks = [audio[i : i + size][None] for i in range(0, len(audio) - size + 1, size)]
            found[f"chunks_{rate}"] = np.concatenate([model(c, rate).numpy()[:, 0] for c in chunks])
            found[f"state_{rate}"] = model._state.numpy()
            model.reset_states()
            found[f"whole_{rate}"] = model.audio_forward(audio[None], rate).numpy()[0]
            # Two voices at once, after the state of one: the model starts anew.
            pair = torch.stack([audio[: 4 * size], audio[size : 5 * size]])
            found[f"pair_{rate}"] = np.stack(
                [model(pair[:, i * size : (i + 1) * size], rate).numpy()[:, 0] for i in range(4)]
            )
    np.savez_compressed(Path(__file__).with_name("silero.npz"), **found)
    for name, value in found.items():
        print(name, value.shape, float(value.min()), float(value.max()), float((value > 0.5).mean()))


if __name__ == "__main__":
    main(sys.argv[1])
