"""Synthetic audio that a voice detector takes for speech in parts: pulses through formant filters, noise, silence."""

from __future__ import annotations

import numpy as np

# Formant frequencies in Hz of a few vowels (Peterson and Barney 1952, rounded).
_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))


def speech(rate: int, seconds: float, seed: int = 7) -> np.ndarray:
    """float32 samples in [-1, 1]: words of vowels and hiss with pauses between; the same for the same arguments."""
    random = np.random.RandomState(seed)
    total = int(rate * seconds)
    out = np.zeros(total)
    at = int(0.4 * rate)
    while at < total:
        for _ in range(random.randint(1, 5)):
            length = int(rate * random.uniform(0.08, 0.3))
            time = np.arange(length) / rate
            pitch = random.uniform(90, 220) * (1 + 0.05 * np.sin(2 * np.pi * 5 * time))
            phase = 2 * np.pi * np.cumsum(pitch) / rate
            sound = np.zeros(length)
            formants = _VOWELS[random.randint(len(_VOWELS))]
            # Harmonics weighted by resonances at the formants.
            for harmonic in range(1, 30):
                frequency = harmonic * pitch.mean()
                if frequency > 0.45 * rate:
                    break
                gain = sum(1.0 / (1.0 + ((frequency - f) / (60 + 0.06 * f)) ** 2) for f in formants) + 0.01
                sound += gain / harmonic**0.5 * np.sin(harmonic * phase)
            envelope = np.minimum(1, np.minimum(time, time[::-1]) / 0.02)
            sound *= envelope * random.uniform(0.15, 0.5) / (np.abs(sound).max() + 1e-9)
            hiss = int(rate * random.uniform(0.0, 0.08))
            piece = np.concatenate([sound, 0.05 * random.standard_normal(hiss)])
            stop = min(total, at + len(piece))
            out[at:stop] += piece[: stop - at]
            at = stop
        at += int(rate * random.uniform(0.1, 1.5))
    out += 0.002 * random.standard_normal(total)
    return np.clip(out, -1, 1).astype(np.float32)
