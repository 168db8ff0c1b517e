"""What `import gpujit` gives and what it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gpujit

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
