"""From LLVM IR to machine code that can be called, by llvmlite alone: Numba is never imported here.

A kernel is a C function ``void kernel(int64 block)``; ``block`` is the address of an array of 8-byte arguments
(pointers, sizes, strides, scalars). Kernels are compiled to an object file, which a later process loads as it is:
loading needs neither Numba nor LLVM's optimiser.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from gpujit.kernels.target import host
from gpujit.support.errors import InternalError

KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def host_key() -> str:
    """What an object file depends on besides its source: machine, vector width, LLVM, llvmlite; as a short hash."""
    version = ".".join(str(n) for n in llvm.llvm_version_info)
    facts = (*map(str, host()), version, llvmlite.__version__)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


@cache
def _machine(level: int) -> Any:
    """A target machine for this host: position-independent, so that objects can be linked into a shared library too."""
    _initialize()
    here = host()
    target = llvm.Target.from_triple(here.triple)
    return target.create_target_machine(cpu=here.cpu, features=here.features, opt=level, reloc="pic", codemodel="small")


def compile_ir(texts: Sequence[str], optimise: int = 1, level: int = 2) -> bytes:
    """One object file with the functions of all modules, given as LLVM IR.

    ``optimise`` is the effort of LLVM's passes over the IR (0 leaves it as it is: IR that Numba has optimised already;
    ``TIDY`` does what hand-written vectors need, in a sixth of the time), ``level`` that of instruction selection and
    scheduling. Raises InternalError for text that is no valid module.
    """
    machine = _machine(level)
    linked = None
    try:
        for text in texts:
            module = llvm.parse_assembly(text)
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            if linked is None:
                linked = module
            else:
                linked.link_in(module)
        if linked is None:
            raise InternalError("no module to compile")
        linked.verify()
    except RuntimeError as fault:
        raise InternalError(f"LLVM refuses a kernel: {fault}") from None
    if optimise:
        _optimise(linked, machine, optimise)
    return bytes(machine.emit_object(linked))


def assembly(text: str, optimise: int = 1, level: int = 2) -> str:
    """The machine's assembly of one module, to read whether it spills and which instructions it uses."""
    machine = _machine(level)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    if optimise:
        _optimise(module, machine, optimise)
    return str(machine.emit_assembly(module))


# Stack slots into registers, and dead code out.
TIDY = -1


def _optimise(module: Any, machine: Any, effort: int) -> None:
    if effort == TIDY:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_dead_code_elimination_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
        return
    options = llvm.create_pipeline_tuning_options(speed_level=effort)
    # Kernels spell their vectors out, and their tiles are unrolled to the registers already.
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


# ELF, and Mach-O of 64 bits.
_OBJECT_FILES = (b"\x7fELF", b"\xcf\xfa\xed\xfe")


# Relocations of x86-64 that go by way of a table instead of being a distance: PLT32 and the GOTPCREL family.
_BY_TABLE = frozenset({4, 9, 41, 42})
_X86_64, _RELA = 62, 4


def _can_lie_together(image: bytes) -> bool:
    """Whether llvmlite's own memory manager can load an object file: it aborts for tables on x86-64."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    if not image.startswith(b"\x7fELF\x02\x01") or struct.unpack_from("<H", image, 18)[0] != _X86_64:
        return False
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    for at in range(start, start + size * count, size):
        kind, offset, length = struct.unpack_from("<4xI16xQQ", image, at)
        if kind == _RELA:
            # Of 24 bytes: where, the kind in 32 bits, the symbol, a distance.
            kinds = np.frombuffer(image, np.uint32, length // 4, offset)[2::6]
            if not _BY_TABLE.isdisjoint(kinds.tolist()):
                return False
    return True


class Library:
    """Object files loaded into this process. Their functions live as long as it does."""

    def __init__(self, *images: bytes) -> None:
        """Raises InternalError for bytes that are plainly no object file; unseal what comes from disk."""
        _initialize()
        self._engines: list[Any] = []
        self._near: Any = None
        self._objects: list[Any] = []
        if images:
            self.add(*images)

    def add(self, *images: bytes) -> None:
        """Load more object files, whose functions must have names of their own. Raises InternalError.

        One thread at a time; functions that are loaded already may run meanwhile.
        """
        for image in images:
            if not image.startswith(_OBJECT_FILES):
                raise InternalError("the object file cannot be loaded: it does not begin as one")
        try:
            near: list[Any] = []
            far: list[Any] = []
            for image in images:
                found = llvm.ObjectFileRef.from_data(image)
                self._objects.append(found)
                (near if _can_lie_together(image) else far).append(found)
            # Sections of an object must lie within reach of 32-bit offsets of each other, whatever else is mapped.
            # llvmlite's memory manager sees to that; where it cannot, a fresh engine maps all of them in one go.
            if near:
                if self._near is None:
                    self._near = self._engine(True)
                self._fill(self._near, near)
            if far:
                self._fill(self._engine(False), far)
        except RuntimeError as fault:
            raise InternalError(f"the object file cannot be loaded: {fault}") from None

    def _engine(self, sections_together: bool) -> Any:
        here = host()
        target = llvm.Target.from_triple(here.triple)
        machine = target.create_target_machine(cpu=here.cpu, features=here.features, jit=True)
        made = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=sections_together)
        self._engines.append(made)
        return made

    def _fill(self, engine: Any, objects: Sequence[Any]) -> None:
        for found in objects:
            engine.add_object_file(found)
        engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function starts. Raises KeyError when no object has one of that name."""
        for engine in self._engines:
            address = int(engine.get_function_address(name))
            if address:
                return address
        raise KeyError(name)

    def kernel(self, name: str) -> Kernel:
        """A function of the library as something to call."""
        return Kernel(name, self.address(name), self)


class Kernel:
    """A compiled kernel: ``address`` for a plan, a call with a block's address (or array of arguments) from Python."""

    __slots__ = ("_call", "address", "name", "owner")

    def __init__(self, name: str, address: int, owner: object) -> None:
        self.name, self.address, self.owner = name, address, owner
        self._call = KERNEL_TYPE(address)

    def __call__(self, block: int | np.ndarray) -> None:
        """Runs the kernel without the GIL. An array stands for its own address: it must be contiguous."""
        self._call(block if isinstance(block, int) else block.ctypes.data)

    def __repr__(self) -> str:
        return f"<kernel {self.name} at {self.address:#x}>"


def pack_block(arguments: Iterable[int | float | np.ndarray]) -> np.ndarray:
    """An argument block: 8 bytes an argument, integers as int64, floats as float64, arrays by their address."""
    values = list(arguments)
    block = np.empty(len(values), np.int64)
    floats = block.view(np.float64)
    for i, value in enumerate(values):
        if isinstance(value, np.ndarray):
            block[i] = value.ctypes.data
        elif isinstance(value, float):
            floats[i] = value
        else:
            block[i] = value
    return block
