"""The CPU renderer: a nest as LLVM IR with explicit vectors, ``void kernel(ptr block, i64 part, i64 parts)``."""

from __future__ import annotations

from llvmlite import ir

from gpujit.kernels.cpu_loops import Loops
from gpujit.kernels.cpu_nest import Nest
from gpujit.kernels.cpu_segments import Segments
from gpujit.kernels.cpu_turned import Turned
from gpujit.kernels.target import host
from gpujit.kernels.vector import I64, Emitter


def render(nest: Nest, name: str = "kernel") -> str:
    """The IR of a module with one function ``name``. Raises NotRendered for what has no code here."""
    module = ir.Module(context=ir.Context())
    pointer = ir.PointerType()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer, I64, I64]), name)
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    kind = Segments if nest.segmented else Loops if nest.turned is None else Turned
    kind(nest, Emitter(builder, ("contract",), host().avx512), *function.args).write()
    if nest.streams:
        # Such stores are not in order with others until then.
        builder.fence("seq_cst")
    builder.ret_void()
    return str(module)
