"""What `import gpujit` gives and what it must not load."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpujit
from gpujit.support.absent import ABSENT

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "ArgumentError",
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "GpujitError",
    "LoadError",
    "OpError",
    "SaveError",
    "ScriptFunction",
    "ScriptMethod",
    "ScriptModule",
    "ScriptRuntimeError",
    "StaticModule",
    "StaticModuleOptions",
    "StaticRuntime",
    "Tensor",
    "TraceCheckError",
    "TraceError",
    "TracerWarning",
    "__version__",
    "annotate",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "fuse",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "load_package",
    "manual_seed",
    "nn",
    "op",
    "ops",
    "optimize_for_inference",
    "plot",
    "profile",
    "profile_module",
    "remove_op",
    "run_frozen_optimizations",
    "save",
    "script",
    "script_if_tracing",
    "trace",
    "trace_module",
    "unused",
    "wait",
]
MODULE = [
    "apply",
    "bfloat16",
    "buffers",
    "children",
    "code",
    "code_with_constants",
    "cpu",
    "cuda",
    "define",
    "double",
    "eval",
    "explain",
    "float",
    "get_buffer",
    "get_parameter",
    "get_submodule",
    "graph",
    "half",
    "inlined_graph",
    "load_state_dict",
    "methods",
    "modules",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "original_name",
    "parameters",
    "plan_stats",
    "save",
    "save_to_buffer",
    "state_dict",
    "to",
    "train",
    "warmup",
]


def public(cls: type) -> list[str]:
    return sorted({n for c in cls.__mro__ for n in vars(c) if not n.startswith("_")})


def test_public_names_are_exactly_these() -> None:
    assert sorted(gpujit.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(gpujit, name) is not None and name in dir(gpujit)
    assert public(gpujit.ScriptModule) == MODULE
    assert public(gpujit.ScriptMethod) == [
        "code",
        "code_with_constants",
        "explain",
        "graph",
        "inlined_graph",
        "name",
        "plan_stats",
        "schema",
        "warmup",
    ]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gpujit' has no attribute 'save_all'"):
        gpujit.save_all  # noqa: B018


# Names that a page of the documentation writes between backquotes.
MIGRATING = set(re.findall(r"`([^`]*)`", (ROOT / "docs" / "migrating.md").read_text()))
WRITTEN = {word for text in MIGRATING for word in re.findall(r"\w+", text)}


@pytest.mark.parametrize("name", ABSENT)
def test_a_name_that_is_not_here_says_what_to_use_instead(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"has no attribute {name!r} of torch.jit: {ABSENT[name]}")):
        getattr(gpujit, name)
    assert name in WRITTEN


def test_what_the_page_on_migrating_names_is_there() -> None:
    named = {m for text in MIGRATING for m in re.findall(r"\bgpujit\.(\w+)", text)} - {"load_package"}
    assert len(named) > 20
    for name in named:
        assert hasattr(gpujit, name) or (ROOT / "gpujit" / name).is_dir(), name


@pytest.mark.torch
def test_every_public_name_of_torch_jit_is_here_or_explained() -> None:
    torch = pytest.importorskip("torch")
    names = [n for n in vars(torch.jit) if not n.startswith("_") and not inspect.ismodule(getattr(torch.jit, n))]
    # What its source imports from elsewhere is none of its names; Final is typing's.
    homes = {n: str(getattr(getattr(torch.jit, n), "__module__", "")) for n in names}
    own = [n for n in names if homes[n].startswith(("torch.jit", "torch._jit", "torch._C")) or n == "Final"]
    assert len(own) > 40
    for name in own:
        # A package has the name of torch.jit.fuser.
        assert name == "fuser" or hasattr(gpujit, name) != (name in ABSENT), name
        assert name in WRITTEN, name


@pytest.mark.torch
@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.pt")), ids=lambda f: f.stem)
def test_the_operators_of_a_module_have_those_of_torch_among_them(file: Path) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = gpujit.export_opnames(gpujit.load(file)), torch.jit.export_opnames(torch.jit.load(file))
    assert set(theirs) <= set(mine)
    # PyTorch folds branches first.
    assert len(mine) <= len(theirs) + 2


def test_the_operators_of_a_module() -> None:
    class Net(gpujit.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = gpujit.nn.Linear(2, 2)

        def forward(self, x: gpujit.Tensor) -> gpujit.Tensor:
            y = self.linear(x)
            if bool(y.sum() > 0):
                y = y.relu() + 1
            return y

        @gpujit.export
        def other(self, x: gpujit.Tensor) -> gpujit.Tensor:
            return x.tanh()

    assert gpujit.export_opnames(gpujit.script(Net())) == [
        "aten::Bool.Tensor",
        "aten::add.Scalar",
        "aten::gt.Scalar",
        "aten::linear",
        "aten::relu",
        "aten::sum",
        "aten::tanh",
    ]
    with pytest.raises(gpujit.ArgumentError, match="export_opnames expects a ScriptModule"):
        gpujit.export_opnames(Net())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import gpujit", ()),
        ("import gpujit; gpujit.load", ("numpy", "ml_dtypes")),
        (
            "import gpujit; gpujit.load('examples/classifier.pt')(__import__('numpy').ones((1, 3, 32, 32), 'f'))",
            ("numpy", "ml_dtypes"),
        ),
        ("import gpujit.cli.main", ("numpy", "ml_dtypes")),
    ],
    ids=["import", "load", "run", "command line"],
)
def test_importing_and_running_loads_no_heavy_package(code: str, allowed: tuple[str, ...]) -> None:
    heavy = {"numba", "llvmlite", "networkx", "cupy", "torch", "scipy", "onnx", "onnxruntime", "numpy", "ml_dtypes"}
    program = f"import sys\n{code}\nprint(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= set(allowed)
    assert done.stderr == ""


def test_every_error_class_has_a_code_of_its_own_and_a_line_in_the_documentation() -> None:
    from pathlib import Path

    from gpujit.support import errors

    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.GpujitError)]
    unique = set(classes)
    assert len({c.code for c in unique}) == len(unique)
    text = (Path(__file__).parent.parent / "docs" / "errors.md").read_text()
    assert [c.__name__ for c in unique if f"`{c.__name__}`" not in text] == []
