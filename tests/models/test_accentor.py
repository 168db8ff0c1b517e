"""torch.package archives nobody here wrote: the stress models of the package silero-stress, on lists of words.

The models are not part of the repository: GPUJIT_TEST_MODELS names a folder that ci/fetch_models.sh filled. The fixture
holds every call that the package's own Python made for the sentences of sentences.py, and PyTorch's results.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from tests.models.sentences import BELARUSIAN, RUSSIAN, UKRAINIAN

FOLDER = Path(os.environ.get("GPUJIT_TEST_MODELS", "."))
SENTENCES = {"accentor": RUSSIAN, "accentor-ukr": UKRAINIAN, "accentor-bel": BELARUSIAN}
Modules = dict[str, gpujit.ScriptModule]
EXPECTED: dict[str, Any] = json.loads(Path(__file__).with_name("accentor.json").read_text(encoding="utf-8"))
PICKLE = "accentor_models/accentor"

pytestmark = pytest.mark.skipif(
    not (FOLDER / "accentor.pt").exists(), reason="accentor.pt is not there; ci/fetch_models.sh gets it"
)


def load(name: str) -> Modules:
    """The modules by their name inside the pickled object, with the weights restored that are kept as bytes."""
    modules = {str(k).removeprefix(f"{PICKLE}."): m for k, m in gpujit.load_package(FOLDER / f"{name}.pt").items()}
    if "homosolver.model" in modules:
        owner = modules["homosolver.model"].bert
        table = owner.embeddings.word_embeddings
    else:
        owner = modules["accentor.model"]
        table = owner.embedding
    assert table.weight.dtype == np.int8
    table.weight = owner.scale * (table.weight - owner.zero_point)
    return modules


@pytest.fixture(scope="module", params=list(SENTENCES))
def case(request: pytest.FixtureRequest) -> tuple[str, Modules]:
    return request.param, load(request.param)


def array(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows, np.float32)


def test_every_call_the_package_makes_gives_what_pytorch_gives(case: tuple[str, Modules]) -> None:
    name, modules = case
    calls = EXPECTED[name]["calls"]
    assert set(calls) == set(modules) and len(calls["accentor.model"]) == len(SENTENCES[name]) >= 20
    for call in calls["accentor.model"]:
        stress, yo = modules["accentor.model"](*call["inputs"])
        check(stress, call["output"][0])
        if call["output"][1] is None:
            assert yo is None
        else:
            check(yo, call["output"][1])
    for call in calls.get("homosolver.model", []):
        got = modules["homosolver.model"](*(np.array(a, np.int64) for a in call["inputs"]))
        np.testing.assert_allclose(got, array(call["output"]), atol=1e-3, rtol=1e-3)


def check(got: np.ndarray, want: list[list[float]]) -> None:
    """Logits of each word: the fixture keeps five digits, and rounding grows with a row's largest logit."""
    expected = array(want)
    assert got.dtype == np.float32 and got.shape == expected.shape
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert float((np.abs(got - expected) / scale).max()) < 1e-4
    np.testing.assert_array_equal(got.argmax(axis=1), expected.argmax(axis=1))


def test_load_gives_the_only_module_or_names_them_all() -> None:
    assert gpujit.load(FOLDER / "accentor-ukr.pt").original_name == "AccentorNgramClean"
    with pytest.raises(gpujit.LoadError, match=r"2 TorchScript modules.*accentor\.model.*homosolver\.model") as caught:
        gpujit.load(FOLDER / "accentor.pt")
    assert "load_package" in str(caught.value)


def test_bytes_as_weights_are_refused_as_by_pytorch() -> None:
    """Without the step that restores them the weights are int8, which embedding_bag does not take."""
    with pytest.raises(gpujit.OpError, match="weight must be float16, bfloat16, float32 or float64, found int8"):
        gpujit.load(FOLDER / "accentor-bel.pt")(["мова"])


@pytest.mark.torch
@pytest.mark.parametrize("name", list(SENTENCES))
def test_the_package_s_own_python_over_our_modules_stresses_the_same_letters(name: str) -> None:
    torch = pytest.importorskip("torch")
    from tests.models.make_accentor import load as load_with_torch

    class Stand:
        """Torch tensors in and out, gpujit between."""

        def __init__(self, module: gpujit.ScriptModule) -> None:
            self.module = module

        def __call__(self, *args: Any) -> Any:
            result = self.module(*args)
            return tuple(map(tensor, result)) if isinstance(result, tuple) else tensor(result)

    def tensor(value: Any) -> Any:
        return None if value is None else torch.from_numpy(value)

    stress = load_with_torch(FOLDER / f"{name}.pt")
    for path, module in load(name).items():
        getattr(stress, path.partition(".")[0]).model = Stand(module)
    assert [stress(s) for s in SENTENCES[name]] == EXPECTED[name]["accented"]
