"""Submissions without work: trivial answers, and code from a release. ``verify`` gives them no points.

In:  an assignment. Out: texts of submissions. Their functions answer as ``unearned/answers.py`` in the folder of
all assignments says: in a trivial way, or by what they find in the files that students get.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import numpy as np

from . import graphs
from .assignment import HOME, Assignment
from .items import PUBLIC
from .kernels import KernelLaunch, KernelRun
from .release import student_files

ANSWERS = HOME / "unearned" / "answers.py"  # the beginning of every such submission
# How a trivial answer is made.
WAYS = (
    "nothing", "zeros", "ones", "each alone", "everything", "first argument", "last argument", "first element", "at random",
)
STAND_IN = """
class Anything:
    def __call__(self, *_, **__):
        return lambda judge: judge

    def __getattr__(self, name):
        return self

    def __getitem__(self, place):
        return self
"""


def _type_text(kind: Any) -> str:
    return str(kind) if get_origin(kind) else kind.__name__


def _parameters(assignment: Assignment) -> dict[str, list[str]]:
    """The functions that an assignment asks for, and their parameters."""
    starter = ast.parse(assignment.starter(assignment.variant)).body
    return {
        node.name: [each.arg for each in node.args.args]
        for node in starter if isinstance(node, ast.FunctionDef) and node.name in assignment.returns
    }


def trivial(assignment: Assignment, way: str, variant: str) -> str:
    """A submission all of whose functions answer in a trivial way, and whose kernels write what is as cheap."""
    texts = [ANSWERS.read_text(encoding="utf-8")]
    for name, names in _parameters(assignment).items():
        kind = assignment.returns[name]
        if kind is not KernelRun:
            texts.append(f"def {name}(*given):\n    return trivial({way!r}, {_type_text(kind)}, list(given))\n")
            continue
        launch = next(each for each in _launches(assignment, variant) if set(each.arrays) == set(names))
        texts.append(_trivial_kernel(name, names, way, launch))
    kernels_alone = all(kind is KernelRun for kind in assignment.returns.values())
    return "\n\n".join(texts[kernels_alone:])


def _launches(assignment: Assignment, variant: str) -> Iterator[KernelLaunch]:
    for item in assignment.items:
        for case in assignment.cases(item, PUBLIC, variant):
            if isinstance(case, KernelLaunch):
                yield case


def _trivial_kernel(name: str, names: list[str], way: str, launch: KernelLaunch) -> str:
    """A kernel that copies an array, or writes one number everywhere, or does nothing."""
    target, source = (launch.outputs or (names[-1],))[0], names[way == "last argument"]
    out = np.asarray(launch.arrays[target])
    same = np.shape(launch.arrays[source]) == out.shape
    numbers = {"zeros": "0", "ones": "1", "everything": "9", "at random": "-3"}
    place = "cuda.blockIdx.x, k" if out.ndim == 2 else "k"
    value = f"{source}[{place}]" if same and way not in numbers else f"np.{out.dtype}({numbers.get(way, '2')})"
    first, end, step = "cuda.threadIdx.x", f"{target}.shape[1]", "cuda.blockDim.x"
    if out.ndim == 1:
        first, end, step = "cuda.grid(1)", f"{target}.size", "cuda.gridsize(1)"
    body = "pass" if way == "nothing" else f"for k in range({first}, {end}, {step}):\n        {target}[{place}] = {value}"
    return f"def {name}({', '.join(names)}):\n    {body}\n"


def taken(assignment: Assignment) -> Iterator[tuple[str, str]]:
    """Each function and method of the files that students get, handed in as each function that is asked for."""
    files = dict(student_files(assignment, assignment.variant))
    own = [files[name] for name in files if name.endswith(".py")]
    ours = [Path(graphs.__file__).read_text(encoding="utf-8"), *own]
    trees = [ast.parse(text) for text in ours]
    asked = _parameters(assignment)
    is_kernel = {name: assignment.returns[name] is KernelRun for name in asked}
    base = [
        "from __future__ import annotations", ANSWERS.read_text(encoding="utf-8"), f"VARIANT = {assignment.variant!r}", STAND_IN,
        *(_without_package(tree) for tree in trees),
    ]
    if all(is_kernel.values()):  # a text of kernels has their constants alone
        starter = ast.parse(files[assignment.file]).body
        base = [ast.unparse(node) for node in starter if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)]
    for owner, node in [found for tree in trees for found in _functions(tree)]:
        texts = list(base)
        for name, names in asked.items():
            if is_kernel[name]:
                texts.append(_as_kernel(node, name, names))
                continue
            what = f"{owner}, {node.name!r}" if owner else f"None, {node.name}_"
            held = "" if owner else f"{node.name}_ = {node.name}\n"
            kind = _type_text(assignment.returns[name])
            texts.append(f"{held}def {name}(*given):\n    return taken({what}, {kind}, {names!r}, list(given))\n")
        yield f"{owner or ''}.{node.name}".lstrip("."), "\n\n".join(texts)


def _as_kernel(node: ast.FunctionDef, name: str, names: list[str]) -> str:
    """The text of a function under another name, and with other names for its parameters."""
    body = "".join(f"    {ast.unparse(each)}\n".replace("\n", "\n    ").rstrip() + "\n" for each in node.body)
    own = [each.arg for each in node.args.args]
    held = "".join(f"    {mine} = {given}\n" for mine, given in zip(own, names, strict=False) if mine != given)
    return f"def {name}({', '.join(names)}):\n{held}{body}\n"


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods at the top of a file, with the class of a method."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, each) for each in node.body if isinstance(each, ast.FunctionDef))


def _without_package(tree: ast.Module) -> str:
    """A file for a process that has no minisitch: what it imports from there is ``Anything``."""
    texts = []
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            texts.append(ast.unparse(node))
        elif "minisitch" in ast.unparse(node) or getattr(node, "level", False):
            names = [each.asname or each.name for each in node.names]
            texts += [f"{name} = globals().get({name!r}, Anything())" for name in names]
        elif "__future__" not in ast.unparse(node):
            texts.append(ast.unparse(node))
    return "\n".join(texts)
