"""The intermediate representation: a flat, frozen list of typed operations.

In:  nodes from ``trace.builder``, which infers their types and checks them.
Out: a ``Graph``: equal by value, printable as a program.

A graph prints as

    %0: f32[4,8] = input name='x'
    %1: f32[4,8] = exp %0                          # model.py:12 in softmax
    %2: f32[4,1] = sum %1 axes=(1,) keepdims=True  # model.py:13 in softmax
    return %2

``trace.parser.parse`` reads this text back: ``parse(str(graph)) == graph``. A node's id is its
position, and operands come earlier. So every stage reads a graph in one ``for`` loop, without
recursion.
"""

import keyword
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors.lazy import lazy
from .errors.printed import Printed
from .ops import OPS, SHORT, itemsize

Shape = tuple[int, ...]  # elements along each axis
Ids = tuple[int, ...]  # nodes of a graph


@dataclass(frozen=True)
class TensorType:
    """Shape (elements per axis) and NumPy dtype name of a value. Prints as ``f32[4,8]``."""

    shape: Shape
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return itemsize(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.size * self.itemsize

    def __str__(self) -> str:
        return f"{SHORT[self.dtype]}[{','.join(map(str, self.shape))}]"


def printable(text: str) -> str:
    """The text on one line, with unprintable characters escaped. So it cannot end a comment."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def id_list(ids: Iterable[int]) -> str:
    """``%1 %2``."""
    return " ".join(f"%{i}" for i in ids)


# Names that emitted text gives itself: column sums (a3), results (r3), values (v3), and those in
# the text of calls (m3, leaves, into).
_OWN = re.compile(r"[armv]\d+\w*|__\w*|leaves|nested|into|memory|thread|call|workspace|read|self_|len|type")


def identifier(text: str) -> str:
    """A name for emitted text, made from a user's name.

    It is ASCII, since Python normalises other letters. It is no keyword, and no name that the text
    of calls uses itself (``_OWN``). A kernel's name ends in a digest, which no name in the kernel's
    text does.
    """
    name = re.sub(r"\W", "_", text, flags=re.ASCII)
    return name if name.isidentifier() and not keyword.iskeyword(name) and not _OWN.fullmatch(name) else f"given_{name}"


@dataclass(frozen=True)
class Node:
    """One operation. ``id`` is its position in the graph. Operands have smaller ids.

    ``where`` is the user's line (``model.py:12``), and ``via`` the composite function it was traced
    from (``softmax``, ``var``). Neither changes what the node means.
    """

    id: int
    op: str
    args: Ids
    type: TensorType
    attrs: tuple[tuple[str, Any], ...] = ()  # sorted pairs: hashable, printable
    where: str = ""
    via: str = ""

    def __post_init__(self) -> None:
        """Make ``where`` and ``via`` printable.

        They come from outside, and stand in comments of emitted text.
        """
        if not (self.where.isprintable() and self.via.isprintable()):
            object.__setattr__(self, "where", printable(self.where))
            object.__setattr__(self, "via", printable(self.via))

    @property
    def kind(self) -> str:
        """``source``, ``map``, ``reduce``, ``move`` or ``library`` (see ``ops.Op``)."""
        return OPS[self.op].kind

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.attrs)

    def attr(self, name: str) -> Any:
        """One attribute. KeyError if the op has none of that name."""
        return dict(self.attrs)[name]

    @property
    def attrs_shown(self) -> list[str]:
        """``axes=(1,)``, ``keepdims=True``, as programs print them."""
        return [f"{key}={value!r}" for key, value in self.attrs]

    def __str__(self) -> str:
        parts = [f"%{self.id}: {self.type} = {self.op}", *(f"%{a}" for a in self.args), *self.attrs_shown]
        origin = self.where + (f" in {self.via}" if self.via else "")
        return " ".join(parts) + (f"  # {origin}" if origin else "")


@dataclass(frozen=True, repr=False)
class Graph(Printed):
    """A program: nodes in execution order and the ids of its outputs (an id may repeat)."""

    nodes: tuple[Node, ...]
    outputs: Ids

    def __str__(self) -> str:
        return "\n".join([*map(str, self.nodes), f"return {id_list(self.outputs)}"])

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def __len__(self) -> int:
        return len(self.nodes)

    @lazy
    def users(self) -> tuple[Ids, ...]:
        """For each node, the ids that read it, ascending, each once."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for arg in dict.fromkeys(node.args):
                found[arg].append(node.id)
        return tuple(map(tuple, found))

    @lazy
    def inputs(self) -> Ids:
        """Ids of the ``input`` nodes, in order: the program's parameters."""
        return tuple(node.id for node in self.nodes if node.op == "input")

    @lazy
    def structure(self) -> str:
        """What the graph means, without source lines: the key of structurally equal graphs.

        It is text, because 0.0 and -0.0 are equal in Python, but are different constants.
        """
        nodes = tuple((n.op, n.args, n.type, repr(n.attrs)) for n in self.nodes)
        return repr((nodes, self.outputs))

    @lazy
    def pulled(self) -> dict[Any, Any]:
        """Results of ``stitch.pull.pull`` that are kept. They are no part of the graph's value."""
        return {}
