"""From generated Numba source to LLVM IR. The one module that uses Numba's private interfaces.

Numba types and lowers the source; everything after that is kernels.native's work: Numba's own passes over the LLVM IR,
its wrappers for Python and its reference counting are left out, as a kernel takes an address and returns nothing.
What is used: numba.core.compiler (CompilerBase, Flags, compile_extra), the passes named below, numba.core.registry, and
of a code library ``create_library``, ``add_ir_module`` and ``_linking_libraries``. Written against Numba 0.68 (llvmlite
0.50); any version whose llvmlite has opaque pointers and LLVM 20 or newer should do (0.62 on).
"""

from __future__ import annotations

from typing import Any

import numba.core.cgutils
import numba.core.compiler
import numba.core.compiler_machinery
import numba.core.errors
import numba.core.registry
import numba.core.typed_passes
import numba.core.types
import numba.core.untyped_passes

from gpujit.kernels import simd
from gpujit.support.errors import InternalError

# Numba annotates too little of itself to be checked against.
core: Any = numba.core
typed: Any = numba.core.typed_passes
untyped: Any = numba.core.untyped_passes


class _KernelCompiler(core.compiler.CompilerBase):  # type: ignore[misc]
    """Numba's passes that straight loops over numbers and vectors need, and no others."""

    def define_pipelines(self) -> list[Any]:
        pipeline = core.compiler_machinery.PassManager("gpujit_kernel")
        steps = (
            untyped.TranslateByteCode,
            untyped.FixupArgs,
            untyped.IRProcessing,
            untyped.ReconstructSSA,
            typed.NopythonTypeInference,
            typed.PreLowerStripPhis,
            typed.AnnotateTypes,
            typed.NativeLowering,
            typed.NoPythonBackend,
        )
        for step in steps:
            pipeline.add_pass(step, step.__name__)
        pipeline.finalize()
        return [pipeline]


def _flags() -> Any:
    flags = core.compiler.Flags()
    flags.error_model = "numpy"
    flags.enable_ssa = True
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.nrt = False
    return flags


def source_to_ir(source: str, symbol: str, lanes: int | None = None, function: str = "kernel") -> list[str]:
    """Modules of LLVM IR in which ``void symbol(int64 block)`` does what ``function(block)`` of the source says.

    The first holds the kernel, the others what Numba's own functions (such as range) compile to. The source sees the
    names of ``simd.namespace(lanes)``. It must come from a renderer, never from a file: it is run.
    Raises InternalError with Numba's message and the source when Numba refuses it.
    """
    names = simd.namespace(lanes)
    # A program of our own renderers; text from models never reaches this.
    exec(compile(source, f"<kernel {symbol}>", "exec"), names)
    typing, target = core.registry.cpu_target.typing_context, core.registry.cpu_target.target_context
    typing.refresh()
    target.refresh()
    library = target.codegen().create_library(symbol)
    modules: list[str] = []
    library.add_ir_module = lambda module: modules.append(core.cgutils.normalize_ir_text(str(module)))
    try:
        result = core.compiler.compile_extra(
            typing, target, names[function], (core.types.int64,), core.types.void, _flags(), {},
            library=library, pipeline_class=_KernelCompiler,
        )  # fmt: skip
    except core.errors.NumbaError as fault:
        raise InternalError(f"Numba refuses a kernel: {fault}\n{source}") from None
    for linked in library._linking_libraries:
        modules.append(str(linked._final_module))
    return _join(modules, result.fndesc, symbol)


def _join(modules: list[str], described: Any, symbol: str) -> list[str]:
    """The modules, the first with an entry point of our own: Numba's function takes a result and an exception first."""
    name = described.llvm_func_name
    text = modules[0]
    # Only this module calls it: private, so that it is inlined and its name clashes with nothing.
    marked = text.replace(f'define i32 @"{name}"', f'define internal i32 @"{name}"')
    if marked == text:
        marked = text.replace(f"define i32 @{name}", f"define internal i32 @{name}")
    entry = f"""
define void @"{symbol}"(i64 %block) {{
  %result = alloca i64, align 8
  %fault = alloca i64, align 8
  %status = call i32 @"{name}"(ptr %result, ptr %fault, i64 %block)
  ret void
}}
"""
    return [marked + entry, *modules[1:]]
