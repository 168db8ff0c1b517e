"""Sphinx: the pages of this folder and the API reference, whose pages are made from ``gpujit.__all__`` and docstrings.

    bash ci/docs.sh
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gpujit

project = "gpujit"
version = release = gpujit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"gpujit {version}"
exclude_patterns = ["build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Links to files of the project that are no pages of these.
suppress_warnings = ["myst.xref_missing"]
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_param = True

# Headings of the reference, and the names under each; what ``gpujit.__all__`` has beside them goes under the last one.
_SECTIONS = {
    "Loading and saving": ("load", "load_package", "save", "ScriptModule", "ScriptMethod"),
    "Optimising": ("freeze", "optimize_for_inference", "run_frozen_optimizations", "fuse"),
    "Static runtime": ("StaticModule", "StaticModuleOptions", "StaticRuntime"),
    "Profiling and pictures": ("profile", "profile_module", "Profile", "plot"),
    "Tracing": ("trace", "trace_module", "TracerWarning"),
    "Scripting": ("script", "script_if_tracing", "CompilationUnit", "ScriptFunction"),
    "Operators of your own": ("op", "remove_op"),
    "Errors": ("GpujitError",),
}
_OTHERS = "More"


def _sections() -> dict[str, list[str]]:
    public = [n for n in gpujit.__all__ if n not in ("__version__", "nn", "ops")]
    found = {title: [n for n in names if n in public] for title, names in _SECTIONS.items()}
    placed = {n for names in found.values() for n in names}
    errors = [n for n in public if n not in placed and _is_error(n)]
    found["Errors"] += errors
    found[_OTHERS] = [n for n in public if n not in placed and n not in errors]
    return found


def _is_error(name: str) -> bool:
    value = getattr(gpujit, name)
    return inspect.isclass(value) and issubclass(value, BaseException)


def _reference(folder: Path) -> None:
    """Write the reference's pages, which autodoc fills."""
    pages = []
    for title, names in _sections().items():
        page = title.lower().replace(" ", "_")
        pages.append(page)
        lines = [f"# {title}", ""]
        for name in names:
            value = getattr(gpujit, name)
            kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
            kind = "module" if inspect.ismodule(value) else kind
            lines += ["```{eval-rst}", f".. auto{_directive(kind, value)}:: gpujit.{name}", "```", ""]
        _write(folder / f"{page}.md", "\n".join(lines))
    pages.append("nn")
    _write(folder / "nn.md", "# Layers\n\n```{eval-rst}\n.. automodule:: gpujit.nn\n   :no-members:\n```\n" + _layers())
    index = ["# API reference", "", "```{toctree}", *pages, "```", ""]
    _write(folder / "index.md", "\n".join(index))


def _directive(kind: str, value: Any) -> str:
    return "exception" if kind == "class" and issubclass(value, BaseException) else kind


def _layers() -> str:
    from gpujit import nn

    names = sorted(n for n in dir(nn) if inspect.isclass(getattr(nn, n, None)) and not n.startswith("_"))
    return "\n".join(
        f"\n```{{eval-rst}}\n.. autoclass:: gpujit.nn.{name}\n   :no-members:\n```\n"
        for name in names
        if getattr(nn, name).__module__.startswith("gpujit.nn")
    )


def _write(path: Path, text: str) -> None:
    """Write a page that is not there, or says something else: what is the same is not read again."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


_WORDS = ("Args:", "Returns:", "Raises ", "Source:")


def _paragraphs(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Blank lines where docstrings have none, as sections and indented blocks end by themselves there."""
    found: list[str] = []
    for line in lines:
        starts = line.startswith(_WORDS)
        after_block = bool(found and found[-1].startswith(" ") and line and not line.startswith(" "))
        if found and found[-1] and (starts or after_block):
            found.append("")
        if line.startswith("Returns: "):
            line = "**Returns** " + line.removeprefix("Returns: ")
        elif found and found[-1].startswith("**Returns**") and line.startswith("    "):
            found[-1] += " " + line.strip()
            continue
        before = found[-2] if len(found) > 1 and not found[-1] else ""
        if line.startswith("    ") and before and not before.startswith((" ", *_WORDS)) and not before.endswith("::"):
            # An indented paragraph is code.
            found += ["::", ""]
        found.append(line)
    lines[:] = found


def setup(app: Any) -> None:
    _reference(Path(app.srcdir) / "api")
    # Before napoleon reads them.
    app.connect("autodoc-process-docstring", _paragraphs, priority=400)
