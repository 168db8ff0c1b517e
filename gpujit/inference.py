"""Making modules ready for inference: ``freeze``, ``run_frozen_optimizations``, ``optimize_for_inference``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.ir import types as T
from gpujit.ir.arrays import describe
from gpujit.ir.dtypes import WEIGHT_TYPES
from gpujit.ir.module import Function, named_modules
from gpujit.modules import ScriptModule, module_object
from gpujit.passes.freeze.methods import FrozenFunction, frozen_methods
from gpujit.program import Program
from gpujit.runtime.warm import call_until_planned
from gpujit.support.errors import ArgumentError, FreezeError

if TYPE_CHECKING:
    from gpujit.static_runtime.buckets import Bucket

# When kernels are compiled.
MODES = ("ahead", "background", "never")
# What constant matrices are kept as.
WEIGHTS = tuple(dtype.name for dtype in WEIGHT_TYPES)
MAX_THREADS = 1024


def freeze(
    mod: ScriptModule,
    preserved_attrs: Sequence[str] | None = None,
    optimize_numerics: bool = True,
    preserve_parameters: bool = False,
) -> ScriptModule:
    """A copy of a module with attributes that never change as constants in its graphs (as torch.jit.freeze).

    Args:
        mod: a module in eval mode; it stays as it is. Weights are shared with it, except those that a fold makes anew
            and those that a method writes into.
        preserved_attrs: methods, attributes and submodules to keep besides ``forward``, dotted below submodules.
        optimize_numerics: fold batch norms, and additions and multiplications of constants, into the weights before
            them, which changes results by rounding.
        preserve_parameters: keep all parameters as attributes.
    Raises ArgumentError for what is no module, and FreezeError for a module in training mode, an unknown name, or a
    call through an interface whose object may change.
    """
    # Loading and running need no passes, which take longer to import than all the rest.
    from gpujit.passes.freeze.main import freeze_object
    from gpujit.passes.freeze.optimise import clean, optimize_frozen

    object_ = module_object(mod, "freeze")
    program = Program(np)
    program.lowerer.rules = mod._program.lowerer.rules
    program.loaded = mod._program.loaded
    program.place(mod._program.device, mod._program.choice)
    with mod._program.on_host(object_):
        root = freeze_object(object_, preserved_attrs or (), preserve_parameters=preserve_parameters, clean=clean)
    graphs = [function.graph for _, _, function in frozen_methods(root)]
    program.report = optimize_frozen(graphs, numerics=optimize_numerics)
    return ScriptModule(root, program)


def run_frozen_optimizations(
    mod: ScriptModule, optimize_numerics: bool = True, preserved_methods: Sequence[str] | None = None
) -> None:
    """Optimise a frozen module in place, as ``freeze`` does at its end (as torch.jit.run_frozen_optimizations).

    Args:
        optimize_numerics: as for ``freeze``.
        preserved_methods: methods to optimise besides ``forward``.
    Raises FreezeError when the module is not frozen or has no such method.
    """
    from gpujit.passes.freeze.optimise import optimize_frozen

    object_ = module_object(mod, "run_frozen_optimizations")
    methods = object_.type.methods
    names = [*(["forward"] if "forward" in methods else []), *(preserved_methods or ())]
    for name in names:
        if not isinstance(methods.get(name), FrozenFunction):
            raise FreezeError(
                f"run_frozen_optimizations: {object_.type.name} has no frozen method {name!r}; call "
                f"gpujit.freeze(module) first. Its methods are {sorted(methods)}"
            )
    graphs = {name: methods[name].graph.copy() for name in dict.fromkeys(names)}
    mod._program.report = optimize_frozen(list(graphs.values()), numerics=optimize_numerics)
    for name, graph in graphs.items():
        methods[name] = FrozenFunction(methods[name], object_.type, graph)


def optimize_for_inference(
    mod: ScriptModule,
    other_methods: Sequence[str] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    threads: int | None = None,
    compile: str = "ahead",
    strict: bool = False,
    weights: str = "float32",
    buckets: Mapping[str | int, Mapping[int, Any]] | None = None,
) -> ScriptModule:
    """The module frozen, as if in eval mode, and optimised for running (as torch.jit.optimize_for_inference).

    Calls are specialised for the shapes and dtypes of their inputs, what can be fused runs as compiled kernels, and
    memory is planned. The first call with inputs of a new kind takes longer; ``warmup`` takes that time before, and
    ``explain`` says what became of each operator. Results differ from the interpreter's by rounding at most.

    Args:
        mod: a module; one that is frozen already is optimised in place and returned. One on a GPU stays there.
        other_methods: methods to keep and optimise besides ``forward``.
        example_inputs: inputs of ``forward``, which is called with them before this returns; what that changes is
            undone.
        threads: how many threads share the work of one call, 1 to 1024; None for what the switch ``threads`` says, else
            for what affinity and the container's quota allow.
        compile: "ahead" compiles what a call needs before that call returns. "background" leaves calls to the
            interpreter while kernels compile in another thread, and uses them from then on. "never" uses the kernels
            that are at hand, in this process or the cache on disk, and NumPy for everything else.
        strict: raise where a call would fall back to the interpreter, or a group to its operators, instead of warning.
        weights: what the constant matrices of linear layers and other products are kept as: "float32"; "bfloat16",
            half the memory, three digits; "int8", a quarter of the memory, 127 steps of the largest one of
            their output. Sums are float32 all the same. Products with few rows wait for memory, and get faster.
        buckets: sizes that plans are made for, by dims of inputs of ``forward`` (by name or position):
            ``{"x": {0: (1, 4, 16, 64)}}`` or ``{0: {0: "powers"}}``, for powers of two. Inputs are padded to the next
            of them and results cut; sizes above the largest have plans of their own. Where it cannot be proven that
            results stay the same, calls raise PaddingError.
    Raises ArgumentError for what is no module, for values that these arguments cannot have, and for example inputs that
    do not fit; FreezeError as ``freeze`` does.
    """
    object_ = module_object(mod, "optimize_for_inference")
    check_options(threads, compile, strict, weights)
    sizes = _forward_buckets(mod, buckets)
    planned = partial(_planned, threads=threads, compile=compile, strict=strict, weights=weights, buckets=sizes)
    if weights != "float32" and mod._program.device is not None:
        raise ArgumentError(
            f"weights={weights!r} is for products on the CPU, and the module is on {mod._program.device.name}; use "
            "module.half() or module.bfloat16() there"
        )
    if example_inputs is not None and not isinstance(example_inputs, (tuple, list)):
        raise ArgumentError(
            "optimize_for_inference: example_inputs is a tuple with a value for each argument, found "
            f"{describe(example_inputs)}; write (x,) for one argument"
        )
    if any(isinstance(f, FrozenFunction) for f in object_.type.methods.values()):
        run_frozen_optimizations(mod, preserved_methods=other_methods)
        return planned(mod, example_inputs)
    modules = [m for _, m in named_modules(object_) if m.type.attributes.get("training") == T.BOOL]
    modes = [m.get("training") for m in modules]
    mod.eval()
    try:
        return planned(freeze(mod, preserved_attrs=other_methods), example_inputs)
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.set("training", mode)


def _forward_buckets(mod: ScriptModule, option: Mapping[str | int, Mapping[int, Any]] | None) -> tuple[Bucket, ...]:
    """The buckets of ``forward``. Raises ArgumentError for what they cannot be."""
    if option is None:
        return ()
    if mod._program.device is not None:
        raise ArgumentError(
            f"buckets are for modules on the CPU, and this one is on {mod._program.device.name}; leave them out there"
        )
    forward = mod._object.type.methods.get("forward")
    if forward is None:
        raise ArgumentError(f"buckets are for inputs of forward, which {mod._object.type.name} has not")
    from gpujit.static_runtime.buckets import buckets_of

    return buckets_of(option, [(a.name, a.type) for a in forward.schema.arguments[1:]])


def check_options(threads: Any, compile: Any, strict: Any, weights: Any = "float32") -> None:
    """Raises ArgumentError for what these options of ``optimize_for_inference`` cannot be."""
    if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
        raise ArgumentError(f"threads is a number from 1 to {MAX_THREADS}, or None; found {describe(threads)}")
    if compile not in MODES:
        raise ArgumentError(f"compile is one of {', '.join(map(repr, MODES))}; found {describe(compile)}")
    if type(strict) is not bool:
        raise ArgumentError(f"strict is a bool; found {describe(strict)}")
    if type(weights) is not str or weights not in WEIGHTS:
        raise ArgumentError(f"weights is one of {', '.join(map(repr, WEIGHTS))}; found {describe(weights)}")


def _planned(
    mod: ScriptModule,
    example_inputs: Sequence[Any] | None = None,
    *,
    threads: int | None,
    compile: str,
    strict: bool,
    weights: str,
    buckets: tuple[Bucket, ...],
) -> ScriptModule:
    """The module with executors for its functions."""
    # The fuser and LLVM take longer to import than an interpreted model to run.
    from gpujit.runtime.executor import Executor
    from gpujit.static_runtime.padded import PaddedExecutor
    from gpujit.static_runtime.planner import planner_of
    from gpujit.static_runtime.steps import Options

    program = mod._program

    def make(function: Function) -> Any:
        if program.device is not None:
            if buckets:
                name = program.device.name
                raise ArgumentError(f"buckets are for modules on the CPU, and this one was moved to {name}")
            return program.on_device(function, strict=strict, compile=compile)
        interpret = partial(program.interpret, function)
        rules, planner = program.lowerer.rules, planner_of(compile, Options(weights=weights, threads=threads))
        kind: Callable[..., Executor] = Executor
        if buckets and function is mod._object.type.methods.get("forward"):
            kind = partial(PaddedExecutor, buckets)
        return kind(function, rules, interpret, strict=strict, planner=planner, compile=compile, threads=threads)

    program.optimise(make)
    program.optimise_copy = partial(
        _planned, threads=threads, compile=compile, strict=strict, weights=weights, buckets=buckets
    )
    if example_inputs is not None:
        call_until_planned(mod, mod._object, example_inputs, {}, program.stats)
    return mod
