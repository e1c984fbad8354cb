"""``torch.compile(model, backend="minisitch")``: PyTorch's graphs, run by our kernels.

In:  the graphs of core ATen operators that Dynamo and AOTAutograd make, forward and backward.
Out: a function of tensors.

    model --Dynamo--> graph --AOTAutograd--> forward, backward --partition--> parts
          --table--> Graph --> kernels

Each operator is one line of a table: what it means in NumPy. A part of the graph whose operators
all have a line is recorded as a NumPy program is. The dtype of each result is the one that PyTorch
says. An operator without a line, or with a dtype that graphs lack (bfloat16, complex), stays
PyTorch's: the graph is cut there, and ``fallbacks`` counts it. Tensors are shared, not copied.

Kitsune (section 4) takes its graphs from Dynamo, too.
"""

import functools
import itertools
import math
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.fx.node import map_arg
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from .errors import DeviceError, LoopWarning, MinisitchError, PlanError
from .explain import Report
from .fuse import count
from .graph import Graph, TensorType
from .ops import SHORT
from .runtime import choose_target, compile_graph
from .trace import erf
from .trace.array import TracedArray, broadcast, cast, constant, fresh, iota, record
from .trace.outside import Outside
from .trace.recorder import ACTIVE, Recorder

TORCH = torch.__file__.removesuffix("__init__.py")
MOST_SHAPES = 8  # programs of one model with changing shapes
# An operator that PyTorch runs, its line in the model, and why -> how often a graph was cut for it
fallbacks: Counter[str] = Counter()


# ---------------------------------------------------------------- operators of several steps
def _axes(dim: Any) -> Any:
    """NumPy's ``axis``. PyTorch says all axes with None, or with an empty list."""
    return tuple(dim) or None if isinstance(dim, Sequence) else dim


def _reduction(function: Callable) -> Callable:
    def reduction(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        return function(x, axis=_axes(dim), keepdims=keepdim)
    return reduction


def _best(value: Callable, place: Callable) -> Callable:
    """``max`` and ``min``: of all elements, or along an axis with the places."""
    def best(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return value(x)
        return value(x, axis=dim, keepdims=keepdim), place(x, axis=dim, keepdims=keepdim)
    return best


def _var_mean(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    mean = np.mean(x, axis=_axes(dim), keepdims=True)
    count = max(0, x.size // max(1, mean.size) - (1 if correction is None else correction))
    variance = np.sum((x - mean) ** 2, axis=_axes(dim), keepdims=keepdim) / count
    return variance, np.mean(x, axis=_axes(dim), keepdims=keepdim)


def _divided(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return x / y
    _nonzero(x, y)
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    return np.trunc(x / y) if x.dtype.kind == "f" else (x - np.fmod(x, y)) // y


def _nonzero(x: Any, y: Any) -> Any:
    """The divisor. PyTorch raises an error where an integer is divided by zero."""
    if x.dtype.kind != "f" and not (isinstance(y, int) and y):
        raise MinisitchError("integers are divided by numbers that may be zero")
    return y


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _at(x: Any, dim: int, index: Any) -> Any:
    """The index of NumPy that takes ``index`` along one axis, and all of the others."""
    return (*[slice(None)] * (dim % x.ndim), index)


def _window(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return _at(x, dim, slice(start, end, step))


def _written(x: Any, index: Any, value: Any) -> Any:
    """A copy of ``x`` with ``value`` at an index."""
    out = x.copy()
    out[index] = value
    return out


def _split(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return [x[_window(x, dim, a, b)] for a, b in zip(ends, ends[1:], strict=False)]


def _expand(x: Any, shape: Sequence[int], *, implicit: bool = False) -> Any:
    old = (*[1] * (len(shape) - x.ndim), *x.shape)
    return broadcast(x, [m if n == -1 else n for m, n in zip(old, shape, strict=True)])


def _cat(arrays: Sequence[Any], dim: int = 0) -> Any:
    """Parts of shape (0,) go with any others, as the empty caches of generating models do."""
    return np.concatenate([x for x in arrays if x.shape != (0,)] or arrays, axis=dim)


def _pad(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    """``pad`` begins with the last axis. Negative numbers take elements away."""
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    x = x[tuple(slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in zip(x.shape, pairs, strict=True))]
    return np.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], constant_values=value)


def _take(x: Any, dim: int, index: Any) -> Any:
    """Along one axis. A negative index is refused when it runs, as PyTorch does."""
    made = record("gather", x, index, axes=(dim % x.ndim,))
    places = range(dim % x.ndim, dim % x.ndim + index.ndim)
    return np.moveaxis(made, tuple(range(index.ndim)), tuple(places))


def _along(x: Any, dim: int, index: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Coordinates on all axes, of which one is given, and the axes."""
    axes = tuple(range(x.ndim))
    return [index if a == dim % x.ndim else iota(index.shape, a) for a in axes], axes


def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    places, axes = _along(x, dim, index)
    return record("gather", x, *places, axes=axes)


def _scatter(x: Any, dim: int, index: Any, values: Any, *, mode: str = "set") -> Any:
    if not isinstance(values, TracedArray):
        values = constant(values, index.shape, x.dtype)
    places, axes = _along(x, dim, index)
    part = values[tuple(map(slice, index.shape))]
    return record("scatter", x, part, *places, axes=axes, mode=mode)


def _index(indices: Sequence[Any]) -> Any:
    return tuple(slice(None) if i is None else i for i in indices)


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if not accumulate:
        return _written(x, _index(indices), values)
    out = x.copy()
    np.add.at(out, _index(indices), values)
    return out


def _arange(start: Any, end: Any, step: Any = 1, **_: Any) -> Any:
    whole = all(isinstance(each, int) for each in (start, end, step))
    count = math.ceil((end - start) / step)
    return iota((count,), 0, "int64" if whole else "float64") * step + start


# ---------------------------------------------------------------- the table: one line an operator
def _named(names: str) -> dict[str, Callable]:
    """Operators that have NumPy's name."""
    return {name: getattr(np, name) for name in names.split()}


# Operands are cast first: to the result's dtype, or to the one that PyTorch compares in.
PROMOTING: dict[str, Callable] = {
    **_named("""maximum minimum hypot abs exp expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh
             tanh floor ceil trunc bitwise_and bitwise_or bitwise_xor"""),
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan tan2 sinh cosh tanh".split()},
    "add": lambda x, y, *, alpha=1: x + (y if alpha == 1 else y * alpha),
    "sub": lambda x, y, *, alpha=1: x - (y if alpha == 1 else y * alpha),
    "mul": lambda x, y: x * y,
    "div": _divided,
    "fmod": lambda x, y: np.fmod(x, _nonzero(x, y)),
    "remainder": lambda x, y: np.remainder(x, _nonzero(x, y)),
    "pow": lambda x, y: x ** y,
    "clamp": _clamp,
    "neg": np.negative,
    "sign": lambda x: np.where(x != x, 0, np.sign(x)),
    "round": np.rint,
    "bitwise_not": np.invert,
    "exp2": lambda x: 2 ** x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "erf": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    **dict(zip("eq ne lt le gt ge".split(), (np.equal, np.not_equal, np.less, np.less_equal,
                                             np.greater, np.greater_equal), strict=True)),
    **{name: _reduction(getattr(np, name)) for name in "sum prod mean amax amin".split()},
    "max": _best(np.max, np.argmax),
    "min": _best(np.min, np.argmin),
    "var_mean": _var_mean,
    "var": lambda *args, **kwargs: _var_mean(*args, **kwargs)[0],
    "cumsum": lambda x, dim, *, dtype=None: np.cumsum(x, axis=dim),
    "cumprod": lambda x, dim, *, dtype=None: np.cumprod(x, axis=dim),
    **dict.fromkeys(("mm", "bmm"), np.matmul),
}
# Operands stay as they are.
OTHER: dict[str, Callable] = {
    **_named("logical_and logical_or logical_xor logical_not isnan isinf where"),
    **dict.fromkeys("clone alias lift_fresh_copy _to_copy".split(), lambda x, **_: x),
    **dict.fromkeys("empty empty_permuted new_empty_strided".split(), lambda *_, **__: 0),
    "any": lambda x, dim=None, keepdim=False: _reduction(np.any)(x != 0, dim, keepdim),
    **{name: _reduction(getattr(np, name)) for name in ("argmax", "argmin")},
    **dict.fromkeys(("full", "full_like", "scalar_tensor"), lambda *given, **_: given[-1]),
    "arange": _arange,
    "view": lambda x, shape: np.reshape(x, tuple(shape)),
    "permute": np.transpose,
    "expand": _expand,
    "unsqueeze": np.expand_dims,
    "squeeze": lambda x, dims: np.squeeze(x, axis=tuple(d for d in dims if x.shape[d] == 1)),
    "slice": lambda x, *window: x[_window(x, *window)],
    "select": lambda x, dim, i: x[_at(x, dim, i)],
    "split_with_sizes": _split,
    "slice_scatter": lambda x, value, *window: _written(x, _window(x, *window), value),
    "cat": _cat,
    "flip": lambda x, dims: np.flip(x, axis=tuple(dims)),
    "repeat": lambda x, times: np.tile(x, tuple(times)),
    "constant_pad_nd": _pad,
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2),
    "copy": lambda x, source, non_blocking=False: broadcast(source, x.shape),
    "embedding": lambda table, ids, *_: _take(table, 0, ids),
    "index_select": _take,
    "index": lambda x, indices: x[_index(indices)],
    "index_put": _index_put,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": functools.partial(_scatter, mode="add"),
}
TABLE = {**PROMOTING, **OTHER}
# Core ATen keeps these whole. Taken apart, they stitch.
WHOLE = """_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm
    native_layer_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training native_batch_norm_backward native_group_norm
    native_group_norm_backward gelu gelu_backward silu silu_backward elu elu_backward leaky_relu
    leaky_relu_backward hardtanh hardtanh_backward addmm tanh_backward embedding_dense_backward
    native_dropout_backward linalg_vector_norm""".split()
# What PyTorch makes of memory without a copy.
VIEWS = {*"view permute expand unsqueeze select slice alias squeeze".split()}


def _operator(n: fx.Node) -> str:
    """An operator's name in the table. Its overloads share a row, which may refuse some."""
    library, _, name = str(n.target).partition(".")
    return name.partition(".")[0] if library == "aten" else ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------- a graph of ATen as one of ours
@contextmanager
def _recording() -> Iterator[Recorder]:
    """A trace of no function: NumPy on traced arrays is recorded."""
    recorder = Recorder("", ("", ""), silent=True)
    recorder.outside = Outside(recorder)
    before = ACTIVE.set(recorder)
    try:
        yield recorder
        if recorder.captured:
            raise MinisitchError("NumPy's source takes arrays of its own")
    finally:
        ACTIVE.reset(before)


def layout(tensor: Tensor) -> tuple[int, ...]:
    """The order of the axes in memory: those of a transposed weight are (1, 0)."""
    return tuple(sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), axis)))


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def _input(recorder: Recorder, tensor: Tensor, name: str) -> Any:
    """A tensor as it lies in memory, behind a transpose."""
    order = layout(tensor)
    type = TensorType(tuple(tensor.shape[axis] for axis in order), _name(tensor.dtype))
    return np.transpose(fresh(recorder.input(type, name), scalar=False), _inverse(order))


def lowered(graph: fx.Graph) -> Graph:
    """A part of PyTorch's graph as one of ours. Inputs and outputs are in memory order.

    Raises MinisitchError for an operator that no row of the table can record.
    """
    values: dict[fx.Node, Any] = {}
    with _recording() as recorder:
        for n in graph.nodes:
            if n.op == "placeholder":
                values[n] = _input(recorder, n.meta["val"], n.name)
            elif n.op == "call_function":
                with recorder.at_line(*_line(n)):
                    values[n] = _result(n, values)
        outputs = _listed(graph.output_node().args[0])
        ordered = [np.transpose(values[n], layout(n.meta["val"])) for n in outputs]
        return recorder.builder.finish([each.node for each in ordered])


def _listed(value: Any) -> list[Any]:
    return [*value] if isinstance(value, tuple | list) else [value]


def _line(n: fx.Node) -> tuple[str, str]:
    """The model's line that an operator comes from, and the function: of ``forward`` the class."""
    frames = re.findall(r'File "(.*?)", line (\d+), in (.+)', n.meta.get("stack_trace") or "")
    frames = [f for f in frames if not f[0].startswith(TORCH)] or frames or [("", "", "")]
    path, line, function = frames[-1]
    modules = n.meta.get("nn_module_stack") or n.meta.get("fwd_nn_module_stack")
    if modules and function in ("forward", ""):
        function = getattr([*modules.values()][-1][1], "__name__", function)
    gradient = "gradient of " if n.meta.get("partitioner_tag") == "is_backward" else ""
    return f"{path.rpartition('/')[2]}:{line}" if path else "", f"{gradient}{function}"


def _result(n: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """What an operator's row makes of its operands, in the shapes and dtypes that PyTorch says."""
    args, kwargs = map_arg((n.args, n.kwargs), values.__getitem__)
    if n.target is operator.getitem:
        return args[0][args[1]]
    name, expected = _operator(n), n.meta["val"]
    if name in PROMOTING:
        to = _listed(expected)[0].dtype
        if to == torch.bool:
            given = map_arg(n.args, lambda each: each.meta["val"])
            compared = [x for x in given if isinstance(x, Tensor | int | float)]
            to = torch.result_type(compared[0], compared[-1])
        args = [cast(a, _name(to)) if isinstance(a, TracedArray) else a for a in args]
    made = TABLE[name](*args, **kwargs)
    if isinstance(expected, Tensor):
        return _as_expected(name, made, expected)
    return [_as_expected(name, *each) for each in zip(made, expected, strict=True)]


def _as_expected(name: str, made: Any, expected: Tensor) -> Any:
    shape, dtype = tuple(expected.shape), _name(expected.dtype)
    made = made if isinstance(made, TracedArray) else constant(made, shape, dtype)
    if made.shape != shape:
        raise MinisitchError(f"{name} gives {made.shape}, and PyTorch says {shape}")
    return cast(made, dtype)


# ---------------------------------------------------------------- what stays PyTorch's
def _refusal(n: fx.Node, device: str) -> str:
    """Why PyTorch runs an operator itself, or an empty text. To find out, it is recorded alone."""
    if _operator(n) not in TABLE:
        return "no line in the table"
    metas = {each: each.meta.get("val") for each in (n, *n.all_input_nodes)}
    for t in itertools.chain(*map(_listed, metas.values())):
        if not isinstance(t, Tensor) or t.layout != torch.strided:
            return f"graphs have no {getattr(t, 'layout', type(t).__name__)}"
        if _name(t.dtype) not in SHORT or t.device.type != device:
            return f"kernels run on {device}, and have no {_name(t.dtype)} on {t.device.type}"
    try:
        with _recording() as recorder:
            inputs = {each: [_input(recorder, t, "x") for t in _listed(meta)]
                      for each, meta in metas.items()}
            _result(n, {each: made[0] if isinstance(metas[each], Tensor) else made
                        for each, made in inputs.items()})
    except Exception as refused:  # whatever a row does not expect
        return f"{type(refused).__name__}: {refused}"
    return ""


def _supported(graph: fx.Graph) -> set[fx.Node]:
    """The operators that our kernels run. The others are counted in ``fallbacks``."""
    device, found = _device(graph), set()
    for n in graph.nodes:
        if n.op != "call_function" or n.meta.get("shared"):
            continue
        own = n.args[0] if n.target is operator.getitem else n
        why = _refusal(n, device) if own is n else "" if own in found else "its operand's"
        if not why:
            found.add(n)
        elif own is n:
            where, function = _line(n)
            fallbacks[f"{n.target} at {where or '?'} in {function or '?'}: {why}"] += 1
    return found


def _device(graph: fx.Graph) -> str:
    """The kind of device that most tensors of a graph are on, if kernels run there."""
    values = (value for n in graph.nodes for value in _listed(n.meta.get("val")))
    kinds = Counter(t.device.type for t in values if isinstance(t, Tensor))
    try:
        return choose_target("cuda") if kinds["cuda"] > kinds["cpu"] else "cpu"
    except DeviceError:
        return "cpu"


def _share(graph: fx.Graph) -> None:
    """Give results that are views of inputs nodes of their own, which PyTorch runs: no copy."""
    output = graph.output_node()

    def own(result: fx.Node) -> fx.Node:
        chain, source = [], result
        while _operator(source) in VIEWS:
            chain.append(source)
            source = source.args[0]
        if source.op != "placeholder":
            return result
        for each in reversed(chain):
            with graph.inserting_before(output):
                source = graph.node_copy(each, {each.args[0]: source}.__getitem__)
            source.meta["shared"] = True
        return source
    output.args = map_arg(output.args, own)
    graph.eliminate_dead_code()


# ---------------------------------------------------------------- running
class Part(torch.nn.Module):
    """A part of PyTorch's graph as a program of ours: ``graph``, and the executable ``run``.

    ``name`` says whether it is of a forward or a backward graph.
    """

    def __init__(self, name: str, of: fx.Graph, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.name, self.graph, self.target = name, lowered(of), _device(of)
        self.run = compile_graph(self.graph, target=self.target, **options)
        results = of.output_node().args[0]
        self.orders = [layout(n.meta["val"]) for n in of.nodes if n.op == "placeholder"]
        self.places = [_inverse(layout(n.meta["val"])) for n in _listed(results)]
        self.single = not isinstance(results, tuple | list)

    @property
    def report(self) -> Report:
        """What was decided, as ``minisitch.explain`` says it."""
        return Report(self.name, self.run.stages)

    def forward(self, *tensors: Tensor) -> Any:
        """Run on tensors, which are shared: nothing is copied on the way in or out."""
        given = [t.detach().permute(order) for t, order in zip(tensors, self.orders, strict=True)]
        if self.target == "cuda":
            made = (torch.as_tensor(x, device="cuda") for x in self.run.run(given))
        else:
            made = map(torch.from_numpy, self.run.outputs([t.resolve_neg().numpy() for t in given]))
        results = [t.permute(place) for t, place in zip(made, self.places, strict=True)]
        return results[0] if self.single else results


def _compiled(name: str, gm: fx.GraphModule, options: Mapping[str, Any],
              parts: list[Part]) -> Callable:
    """A function of tensors for one graph of AOTAutograd."""
    _share(gm.graph)
    supported = _supported(gm.graph)
    support = create_op_support(lambda _, n: n in supported)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    whole = partitioner.fuse_partitions(partitioner.propose_partitions())
    for child, part in [*whole.named_children()]:
        if child.startswith("fused_"):
            try:
                parts.append(Part(name, part.graph, options))
                setattr(whole, child, parts[-1])
            except PlanError as refused:  # PyTorch runs the part
                fallbacks[f"{len(part.graph.nodes)} operators, {name}: {refused}"] += 1
    whole.recompile()
    return make_boxed_func(whole.forward)


def _each_shape(gm: fx.GraphModule, build: Callable) -> Callable:
    """One program for each combination of shapes, up to MOST_SHAPES. Then PyTorch runs it."""
    made: dict[Any, Callable] = {}
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    names = [n.meta["grapharg"].source.name for n in placeholders]
    warned = False

    def fixed(given: Sequence[Any]) -> fx.GraphModule:
        """Dynamo's graph for these shapes: sizes among the arguments become numbers."""
        graph = fx.Graph()
        pairs = zip(placeholders, given, strict=True)
        sizes = {n: x for n, x in pairs if not isinstance(x, Tensor)}
        graph.output(graph.graph_copy(gm.graph, sizes))
        return fx.GraphModule(gm, graph)

    def run(*given: Any) -> Any:
        nonlocal warned
        tensors = [x for x in given if isinstance(x, Tensor)]
        key = tuple(tuple(x.shape) if isinstance(x, Tensor) else x for x in given)
        if key not in made and len(made) < MOST_SHAPES:
            made[key] = build(fixed(given), tensors)
        if key in made:
            return made[key](*tensors)
        if not warned:
            warned = True
            warnings.warn(f"{_changing(names, [*made])} came in {MOST_SHAPES} shapes, each a "
                          "program of its own: PyTorch runs others itself. Pad to a few shapes",
                          LoopWarning, stacklevel=2)
        return gm(*given)
    return run


def _changing(names: Sequence[str], shapes: Sequence[Any]) -> str:
    """The names of the model's arguments that come in several shapes, of Dynamo's ``L['x']``."""
    seen = dict(zip(names, zip(*shapes, strict=True), strict=True))
    several = [name for name in names if len({*seen[name]}) > 1 and ".size()" not in name]
    return ", ".join(re.sub(r"^L\['(\w+)'\]", r"\1", name) for name in several)


# ---------------------------------------------------------------- the doors
@functools.cache
def _decompositions() -> dict[Any, Callable]:
    """How PyTorch's operators become those of the table."""
    whole = [getattr(torch.ops.aten, name) for name in WHOLE]
    return {**torch.export.default_decompositions(), **get_decompositions(whole)}


def minisitch(gm: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None,
              options: Mapping[str, Any] | None = None,
              parts: list[Part] | None = None) -> Callable:
    """The backend, as ``torch.compile`` calls it.

    ``options``: ``strategy`` (``astitch`` unless given: ``auto`` plans 20 times as long),
    ``device``, ``exact`` and ``passes``, as ``minisitch.jit`` takes them. ``parts`` collects what
    is compiled.

    Raises MinisitchError for other options, and for a ``mode``, which is Inductor's.
    """
    chosen = {"strategy": "astitch", **(options or {})}
    if mode is not None or chosen.keys() - {"strategy", "device", "exact", "passes"}:
        raise MinisitchError(f"torch.compile(mode={mode!r}, options={options}): this backend has "
                             "no mode, and the options strategy, device, exact and passes; write "
                             "options={'strategy': 'auto'}")
    made = [] if parts is None else parts

    def compiler(name: str) -> Callable:
        return lambda graph, _: _compiled(name, graph, chosen, made)

    def build(graph: fx.GraphModule, given: Sequence[Any]) -> Callable:
        backend = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"),
                               decompositions=_decompositions())
        with sdpa_kernel(SDPBackend.MATH):  # attention comes apart
            return backend(graph, given)
    changing = any(isinstance(x, torch.SymInt) for x in inputs)
    return _each_shape(gm, build) if changing else build(gm, inputs)


@dataclass(frozen=True)
class Explained:
    """What became of a model. ``parts`` are programs: ``part.report`` explains one, and
    ``minisitch.compare(part.graph)`` sets the strategies side by side.
    """

    parts: tuple[Part, ...]
    fallbacks: Counter[str]

    def __str__(self) -> str:
        lines = [f"{p.name}: {count(len(p.graph), 'operation')}, {p.run}" for p in self.parts]
        own = [f"  {times} x {said}" for said, times in self.fallbacks.items()]
        return "\n".join([*lines, "PyTorch runs itself:", *(own or ["  nothing"])])


def explain(model: Callable, /, *args: Any, options: Mapping[str, Any] | None = None,
            **kwargs: Any) -> Explained:
    """Compile a model, or a function of tensors, for these arguments, and run it once.

    It also runs backward if a result has a gradient. No ``.grad`` changes.
    """
    parts: list[Part] = []
    before = Counter(fallbacks)
    backend = functools.partial(minisitch, parts=parts, options=options)
    made = tree_leaves(torch.compile(model, backend=backend)(*args, **kwargs))
    results = [each for each in made if isinstance(each, Tensor) and each.requires_grad]
    given = [*tree_leaves((args, kwargs)), *getattr(model, "parameters", tuple)()]
    wanted = [each for each in given if isinstance(each, Tensor) and each.requires_grad]
    if results and wanted:
        torch.autograd.grad(results, wanted, [*map(torch.ones_like, results)], allow_unused=True)
    return Explained(tuple(parts), fallbacks - before)
