"""Modules and their methods with the interface of torch.jit's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from gpujit.frontend.trace.current import CURRENT
from gpujit.ir.graph import Graph
from gpujit.ir.module import Function
from gpujit.ir.schema import Schema
from gpujit.ir.values import CPU, Device, DeviceTensor, ScriptObject, parse_device
from gpujit.nn.scripted import Scripted, walk
from gpujit.passes.device import remap_devices
from gpujit.passes.freeze.convert_dtype import convert_dtype, convert_weights, floating_dtype
from gpujit.passes.freeze.methods import FrozenFunction, frozen_methods, with_own_methods
from gpujit.passes.inline import inlined
from gpujit.program import Program
from gpujit.runtime.device import choose, open_device
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.values import bind_arguments, convert_attribute
from gpujit.runtime.warm import warm_up
from gpujit.support.errors import ArgumentError, FreezeError, TraceError, UnknownAttributeError
from gpujit.support.watch import entering

if TYPE_CHECKING:
    from gpujit.frontend.trace.state import Tracer

# The profiler that sees calls from outside, or None.
_entering = entering.get


class ScriptMethod:
    """A method of a module: call it, or look at its ``schema``, ``graph`` and ``code``."""

    def __init__(self, owner: ScriptObject, function: Function, program: Program) -> None:
        self._owner = owner
        self._function = function
        self._program = program

    @property
    def name(self) -> str:
        return self._function.short_name

    @property
    def schema(self) -> Schema:
        """The declared signature, ``self`` first."""
        return self._function.schema

    @property
    def graph(self) -> Graph:
        """The method's graph, calls left as calls."""
        return self._function.graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph with all known calls replaced by their bodies."""
        return inlined(self._function.graph)

    @property
    def code(self) -> str:
        """The source text as the archive holds it, or would hold it for a method that has none yet (frozen ones)."""
        return self.code_with_constants[0]

    @property
    def code_with_constants(self) -> tuple[str, Constants]:
        """``code``, and the values it names as ``CONSTANTS.c0`` and so on."""
        place = self._function.source
        # A source that knows of no original is the author's own, not an archive's.
        if place is None or place.source.original is None:
            # Printing is needed by few, and loading by all.
            from gpujit.serialization.python_print import print_function

            text, values = print_function(self._function)
            return text, Constants(values)
        loaded = self._program.loaded
        return _source_text(self._function), Constants(() if loaded is None else loaded.resolver.constants)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method. Tensors may be anything with ``__array__`` or ``__dlpack__``; results are NumPy arrays.

        ``out``, where the method has no argument of that name, is an array for the result, or a tuple of arrays (and
        None) for a tuple of results: they are written into and returned in the place of new ones. They may overlap
        inputs, which then are read first.
        Raises ArgumentError for arguments that do not fit (then nothing was run) and for ``out`` of another shape or
        dtype than the result (then nothing was written), ScriptRuntimeError or OpError when the program fails.
        """
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self, self.__call__, args, kwargs)
        program = self._program
        tracer = CURRENT.get()
        if tracer is not None and is_recorded(tracer, self._owner, args, kwargs):
            return recorded(tracer, self._owner, self._function, args, kwargs, program)
        out = _take_out(self._function.schema, kwargs, program) if kwargs else None
        if program.device is not None:
            args, kwargs = program.arguments(args), program.arguments(kwargs)
        values = bind_arguments(self._function.schema, args, kwargs, skip=1)
        return wrap(program.run(self._function, [self._owner, *values], out), program)

    def warmup(self, inputs: Sequence[Any]) -> PlanStats:
        """Prepare for inputs of these kinds, so that calls with such inputs need not; see ScriptModule.warmup."""
        self._program.require_plans(self._function)
        return warm_up(self, self._function.schema, self._owner, inputs, self._program.stats)

    def plan_stats(self) -> PlanStats:
        """Plans made, found and dropped so far; zeros for a method that runs on the interpreter alone."""
        executor = self._program.executor(self._function)
        return PlanStats() if executor is None else executor.stats()

    def explain(self) -> str:
        """What runs each operator for the inputs met so far, and why nothing better: groups and what they save, a line
        for each node with its tier (docs/running.md has their names).
        """
        executor = self._program.executor(self._function)
        if executor is None:
            text = f"{self._function.name} runs on the interpreter; see gpujit.optimize_for_inference"
        else:
            text = str(executor.explain())
        choice = self._program.choice
        return f"{choice}\n{text}" if choice else text

    def __repr__(self) -> str:
        return f"<ScriptMethod {self._function.name}>"


def is_recorded(tracer: Tracer, owner: ScriptObject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a method's call belongs into a trace: its module is below what is traced, or what it gets is traced."""
    # Loading and running need no tracer.
    from gpujit.frontend.trace.state import holds_traced

    return tracer.has_part(owner) or holds_traced((*args, *kwargs.values()))


def recorded(tracer: Tracer, owner: ScriptObject, function: Function, args: Any, kwargs: Any, program: Program) -> Any:
    """What a method's call gives in a trace, in which it stays a call."""
    # Loading and running need no tracer.
    from gpujit.frontend.trace.compiled import call_method

    if program.device is not None:
        raise TraceError(f"{function.name} runs on {program.device}; call to('cpu') before it is traced")

    def run(values: list[Any]) -> Any:
        return program.run(function, [owner, *bind_arguments(function.schema, tuple(values), {}, skip=1)])

    return call_method(tracer, owner, function, args, kwargs, run)


def _take_out(schema: Schema, kwargs: dict[str, Any], program: Program) -> Any:
    """The arrays that the caller gives for results, taken from the keyword arguments; None when there are none."""
    if "out" not in kwargs or any(a.name == "out" for a in schema.arguments):
        return None
    return program.targets(kwargs.pop("out"))


class Constants:
    """The values that code names as ``CONSTANTS.c0``, ``CONSTANTS.c1``: attributes ``c0``, ``c1``."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.const_mapping = {f"c{i}": value for i, value in enumerate(values)}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["const_mapping"][name]
        except KeyError:
            raise AttributeError(f"there is no constant {name!r}") from None


def _source_text(function: Function) -> str:
    place = function.source
    if place is None:
        return ""
    lines = place.source.lines()[place.line - 1 : place.end_line]
    return (
        "\n".join(line[place.column :] if line[: place.column].isspace() or not line else line for line in lines) + "\n"
    )


def wrap(value: Any, program: Program) -> Any:
    """A result as callers see it: objects of classes become modules, lists and dicts the caller's own."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, ScriptObject):
        return ScriptModule(value, program)
    if isinstance(value, DeviceTensor):
        return program.array(value)
    if isinstance(value, list):
        return [wrap(v, program) for v in value]
    if isinstance(value, tuple):
        items = [wrap(v, program) for v in value]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if isinstance(value, dict):
        return {k: wrap(v, program) for k, v in value.items()}
    return value


class ScriptModule(Scripted):
    """A loaded module (or an object of a scripted class), with the interface of torch.jit.ScriptModule.

    Attributes read and write under their own names; writing checks the declared type. Two wrappers of one object are
    equal. Calling a module that writes none of its attributes is safe from many threads at once.
    """

    _object: ScriptObject
    _program: Program

    def __init__(self, object_: ScriptObject, program: Program) -> None:
        object.__setattr__(self, "_object", object_)
        object.__setattr__(self, "_program", program)
        program.add_root(object_)

    def _wrapped(self, module: ScriptObject) -> ScriptModule:
        return ScriptModule(module, self._program)

    def _read(self, name: str) -> Any:
        return wrap(self._program.read(self._object, self._object.type.slot_of[name]), self._program)

    def _on_host(self, value: Any) -> Any:
        return self._program.fetched(value)

    def _fill(self, array: Any, numbers: np.ndarray) -> None:
        self._program.fill(array, numbers)

    def _replace_arrays(self, fn: Callable[[Any], Any]) -> None:
        self._program.bring_back()
        super()._replace_arrays(fn)

    def __copy__(self) -> ScriptModule:
        """Another module with the same arrays and submodules, on the CPU; of an optimised one, optimised alike."""
        self._program.bring_back()
        return self._copied(ScriptObject(self._object.type, list(self._object.slots)), below=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptModule:
        """Another module with copies of all arrays, lists, dicts and objects, on the CPU.

        Code is shared, and with it the weights that freezing put there, which never change. A copy of an optimised
        module is optimised alike, and makes plans of its own.
        """
        self._program.bring_back()
        return self._copied(deepcopy(self._object, memo), below=True)

    def _copied(self, object_: ScriptObject, *, below: bool) -> ScriptModule:
        with_own_methods(object_, below=below)
        made = ScriptModule(object_, self._program.copy())
        if self._program.optimise_copy is not None:
            self._program.optimise_copy(made)
        return made

    # ----------------------------------------------------------------------------------------------- calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` with the module's forward hooks around it. See ScriptMethod.__call__."""
        quick, tracer = self._program.quick, CURRENT.get()
        if quick is not None and quick[0] is self._object and not kwargs and tracer is None and _entering() is None:
            result = quick[1](args)
            if result is not NotImplemented:
                return result
        watch = _entering()
        if watch is not None and watch.wants():
            return watch.call(self, self.__call__, args, kwargs)
        t = self._object.type
        function = t.methods.get("forward")
        if function is None:
            raise UnknownAttributeError(f"{t.name} has no method 'forward'; it has {sorted(t.methods)}")
        program = self._program
        if tracer is not None and is_recorded(tracer, self._object, args, kwargs):
            return self._recorded(tracer, function, args, kwargs)
        out = _take_out(function.schema, kwargs, program) if kwargs else None
        if program.device is not None:
            args, kwargs = program.arguments(args), program.arguments(kwargs)
        values = bind_arguments(function.schema, args, kwargs, skip=1)
        run = program.run
        for hook in t.forward_pre_hooks:
            result = run(t.methods[hook], [self._object, tuple(values)])
            if result is not None:
                values = list(result) if isinstance(result, tuple) else [result]
        if not t.forward_hooks:
            result = run(function, [self._object, *values], out)
            if not t.forward_pre_hooks:
                program.note_call(self._object, function)
            return wrap(result, program)
        result = run(function, [self._object, *values])
        for hook in t.forward_hooks:
            changed = run(t.methods[hook], [self._object, tuple(values), result])
            if changed is not None:
                result = changed
        return wrap(program.put(result, out), program)

    def _recorded(self, tracer: Tracer, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the call gives in a trace, in which it stays a call."""
        # Loading and running need no tracer.
        from gpujit.frontend.trace.compiled import arguments

        t, program = self._object.type, self._program
        values = arguments(function.schema, args, kwargs, 1)
        for hook in t.forward_pre_hooks:
            result = recorded(tracer, self._object, t.methods[hook], (tuple(values),), {}, program)
            if result is not None:
                values = list(result) if isinstance(result, tuple) else [result]
        result = recorded(tracer, self._object, function, tuple(values), {}, program)
        for hook in t.forward_hooks:
            changed = recorded(tracer, self._object, t.methods[hook], (tuple(values), result), {}, program)
            if changed is not None:
                result = changed
        return result

    def warmup(self, inputs: Sequence[Any]) -> PlanStats:
        """Make the plans, and compile the kernels, that calls with inputs of these kinds need; returns what there is.

        The module is called on each entry until no new plans are made. What that changes is undone: attributes, the
        arrays given, random numbers. Call it while no other thread uses the module.
        Args:
            inputs: a list with an entry for each kind of inputs: a tuple with something for each argument, or a dict of
                keyword arguments. For a tensor that is an array, a shape (of float32 zeros), or a pair of shape and
                dtype. An array or shape alone stands for a tuple of it.
        Raises ArgumentError for entries that do not fit, and for a module that is not optimised; and what a call
        raises.
        """
        forward = self._forward()
        self._program.require_plans(forward._function)
        return warm_up(self, forward.schema, self._object, inputs, self._program.stats)

    def plan_stats(self) -> PlanStats:
        """Plans made, found and dropped so far by all methods; zeros for a module that runs on the interpreter."""
        return self._program.stats()

    # -------------------------------------------------------------------------------------------- attributes

    def __getattr__(self, name: str) -> Any:
        t = self._object.type
        if name in t.slot_of:
            value = self._program.read(self._object, t.slot_of[name])
            if type(value) is np.ndarray and (tracer := CURRENT.get()) is not None:
                return tracer.read_attribute(self._object, name, value)
            return wrap(value, self._program)
        if name in t.methods:
            return ScriptMethod(self._object, t.methods[name], self._program)
        if name in t.constants:
            return t.constants[name][1]
        getter = t.methods.get(f"__{name}_getter")
        if getter is not None:
            return ScriptMethod(self._object, getter, self._program)()
        if isinstance(getattr(type(self), name, None), property):
            name = "forward"  # what the property (such as ``graph``) looked for in vain
        raise UnknownAttributeError(f"{t.name} has no attribute or method {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        t = self._object.type
        if name in t.slot_of:
            program = self._program
            found = convert_attribute(program.arguments(value), t.attributes[name], t.name, name)
            self._object.set(name, program.taken(found))
            return
        setter = t.methods.get(f"__{name}_setter")
        if setter is not None:
            ScriptMethod(self._object, setter, self._program)(value)
            return
        kind = "a constant" if name in t.constants else "not an attribute"
        raise UnknownAttributeError(f"{name!r} is {kind} of {t.name}; its attributes are {list(t.attributes)}")

    def __dir__(self) -> list[str]:
        t = self._object.type
        return sorted({*object.__dir__(self), *t.attributes, *t.constants, *t.methods})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScriptModule) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)

    @property
    def original_name(self) -> str:
        """Name of the class the module was made from."""
        return self._object.type.name.rpartition(".")[2]

    def __repr__(self) -> str:
        out: list[str] = []
        before = 0
        for path, module, depth in (*walk(self._object, ""), ("", None, 0)):
            if out and depth <= before:
                # The last one had no children; those around it that are over close on lines of their own.
                out[-1] += ")"
                out += ["  " * d + ")" for d in range(before - 1, depth - 1, -1)]
            if module is not None:
                label = f"({path[:-1].rpartition('.')[2]}): " if depth else ""
                out.append(f"{'  ' * depth}{label}ScriptModule(original_name={module.type.name.rpartition('.')[2]}")
            before = depth
        return "\n".join(out)

    def _repr_html_(self) -> str:
        # Notebooks alone ask for it.
        from gpujit.pictures.notebook import module_html

        return module_html(self._object)

    # ------------------------------------------------------------------------------------------ dtype and device

    def to(
        self, *targets: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, casts: bool = False
    ) -> ScriptModule:
        """Convert floating-point parameters and buffers, in place; returns this module.

        In a frozen module the weights among the graphs' constants are converted as well.

        On a GPU (``"cuda:0"``; ``"cuda"`` is the current one, ``"auto"`` the first one that can be used, or else the
        CPU) all modules of the file run there from now on: results are CuPy arrays, inputs are arrays on that GPU or on
        the host, and devices that the code names are that one. Tensors in attributes are there too, and are read as
        arrays on that GPU (docs/gpu.md says which stay NumPy arrays).
        Args:
            targets: a dtype (``"float16"``, ``np.float16``), a device (``"cpu"``), or an array that has both.
            casts: also convert the dtypes that a frozen module's graphs name: ``x.to(float32)``, ``zeros(...)``.
        Raises DTypeError for a dtype that weights cannot have, DeviceError for a device that is not there, and
        FreezeError for ``casts`` with a module that is not frozen; the module is unchanged then.
        """
        devices, dtypes = [] if device is None else [device], [] if dtype is None else [dtype]
        for target in targets:
            if hasattr(target, "shape") and hasattr(target, "dtype") and not isinstance(target, type):
                dtypes.append(target.dtype)
            elif isinstance(target, bool):
                continue
            elif isinstance(target, Device) or floating_dtype(target) is None:
                devices.append(target)
            else:
                dtypes.append(target)
        wanted = [floating_dtype(d) for d in dtypes]
        if len(wanted) > 1 or len(devices) > 1 or any(w is None for w in wanted):
            raise ArgumentError(
                f"to() takes at most one dtype and one device, found {[*map(str, (*dtypes, *devices))]}"
            )
        place, choice = None, ""
        if devices and devices[0] == "auto":
            place, choice = choose()
        elif devices:
            place = devices[0] if isinstance(devices[0], Device) else parse_device(str(devices[0]))
        gpu = None if place is None or place == CPU else open_device(place)
        frozen = next(frozen_methods(self._object), None) is not None
        if casts and not frozen:
            raise FreezeError("to(casts=True) edits the graphs of a frozen module; call gpujit.freeze(module) first")
        if wanted:
            self._program.bring_back()
            found = wanted[0]
            assert found is not None
            convert_weights(self._object, found)
            known: dict[int, tuple[Any, Any]] = {}
            _edit_graphs(self._object, lambda graph: convert_dtype(graph, found, casts=casts, known=known))
        if place == CPU:
            _edit_graphs(self._object, lambda graph: remap_devices(graph, CPU))
        if place is not None:
            self._program.place(gpu, choice)
        return self

    def cuda(self, device: Any = None) -> ScriptModule:
        """``to`` a GPU, by its number; the current one unless it is given."""
        return self.to("cuda" if device is None else f"cuda:{device}" if type(device) is int else device)

    def cpu(self) -> ScriptModule:
        """``to("cpu")``."""
        return self.to("cpu")

    def half(self) -> ScriptModule:
        """``to("float16")``."""
        return self.to("float16")

    def bfloat16(self) -> ScriptModule:
        """``to("bfloat16")``."""
        return self.to("bfloat16")

    def float(self) -> ScriptModule:
        """``to("float32")``."""
        return self.to("float32")

    def double(self) -> ScriptModule:
        """``to("float64")``."""
        return self.to("float64")

    def define(self, src: str) -> None:
        """Add methods given as source text, whose first argument is the module (as torch.jit.ScriptModule.define).

        Raises SourceError, with the line, for text outside the language; nothing is added then.
        """
        # Loaded modules need no compiler of live code.
        from gpujit.frontend.script import COMPILER

        with COMPILER.lock:
            COMPILER.text_functions(src, self_type=self._object.type)

    # ----------------------------------------------------------------------------------------------- looking

    def _forward(self) -> ScriptMethod:
        function = self._object.type.methods.get("forward")
        if function is None:
            raise UnknownAttributeError(f"{self._object.type.name} has no method 'forward'")
        return ScriptMethod(self._object, function, self._program)

    def explain(self) -> str:
        """``ScriptMethod.explain`` of ``forward``."""
        return self._forward().explain()

    @property
    def graph(self) -> Graph:
        """The graph of ``forward``, calls left as calls."""
        return self._forward().graph

    @property
    def inlined_graph(self) -> Graph:
        """The graph of ``forward`` with known calls replaced by their bodies."""
        return self._forward().inlined_graph

    @property
    def code(self) -> str:
        """The source of ``forward`` as the archive holds it, or would hold it. See ScriptMethod.code."""
        return self._forward().code

    @property
    def code_with_constants(self) -> tuple[str, Constants]:
        """``code``, and the values it names as ``CONSTANTS.c0`` and so on."""
        return self._forward().code_with_constants

    # ------------------------------------------------------------------------------------------------ saving

    def save(self, f: Any, _extra_files: Mapping[str, Any] | None = None) -> None:
        """Write the module as a TorchScript archive. See ``gpujit.save``."""
        # Loading and running need no writer.
        from gpujit.serialization import writer

        object_ = module_object(self, "save")
        with self._program.compiling(), self._program.on_host(object_):
            writer.save(object_, f, extra_files=_extra_files, **self._program.saving())

    def save_to_buffer(self, _extra_files: Mapping[str, Any] | None = None) -> bytes:
        """The bytes that ``save`` writes."""
        from gpujit.serialization import writer

        object_ = module_object(self, "save_to_buffer")
        with self._program.compiling(), self._program.on_host(object_):
            return writer.save_to_bytes(object_, extra_files=_extra_files, **self._program.saving())

    @property
    def methods(self) -> dict[str, ScriptMethod]:
        """All methods by name."""
        return {n: ScriptMethod(self._object, f, self._program) for n, f in self._object.type.methods.items()}


# ------------------------------------------------------------------------------------------------------------ saving


def module_object(mod: Any, what: str) -> ScriptObject:
    if not isinstance(mod, ScriptModule) or not mod._object.type.is_module:
        raise ArgumentError(
            f"{what} expects a ScriptModule, such as gpujit.load returns, as input; found a {type(mod).__name__}"
        )
    return mod._object


def _edit_graphs(root: ScriptObject, edit: Callable[[Graph], bool]) -> None:
    """Give frozen methods an edited copy of their graph; calls that run meanwhile keep the old one."""
    for owner, name, function in list(frozen_methods(root)):
        graph = function.graph.copy()
        if edit(graph):
            owner.methods[name] = FrozenFunction(function, owner, graph)
