"""Write the operators of ``minisitch.torch_backend`` into docs/pytorch.md. Needs PyTorch.

    python tools/operator_table.py

In:  the table, as the file says it. Out: the page, with all between its two marks written anew.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import torch

from minisitch import torch_backend

PAGE = Path(__file__).resolve().parent.parent / "docs" / "pytorch.md"
MARKED = re.compile(r"(?<=<!-- operators -->\n).*?(?=<!-- end -->)", re.S)


def meanings() -> dict[str, str]:
    """What each operator is in NumPy: its line of the table, or NumPy's own name."""
    text = Path(torch_backend.__file__).read_text(encoding="utf-8")
    said = {}
    tables = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict)]
    for key, value in [row for table in tables for row in zip(table.keys, table.values, strict=True)]:
        names = [key.value] if isinstance(key, ast.Constant) else []
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict.fromkeys":  # several names, one meaning
            names, value = eval(ast.unparse(value.args[0])), value.args[1]
        said.update(dict.fromkeys(names, ast.unparse(value)))
    return {name: said.get(name) or _numpy_name(name, row) for name, row in torch_backend.TABLE.items()}


def _numpy_name(operator: str, row: object) -> str:
    name = getattr(row, "__name__", "")
    return f"np.{name if hasattr(np, name) else operator}"


def core() -> set[str]:
    """The operators that PyTorch calls core ATen."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        library, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        made = getattr(getattr(torch.ops.aten, operator, None), overload or "default", None) if library == "aten" else None
        if made is not None and torch.Tag.core in made.tags:
            found.add(operator)
    return found


def written() -> str:
    """The part of the page between the marks."""
    known = {str(each).split(".")[1] for each in torch_backend._decompositions()}
    rest = sorted(core() - torch_backend.TABLE.keys() - known)
    cast = {name: "yes" if name in torch_backend.PROMOTING else "" for name in torch_backend.TABLE}
    rows = [f"| `{name}` | `{said}` | {cast[name]} |" for name, said in sorted(meanings().items())]
    return "\n".join(["", "| operator | what it means | operands are cast to the result's dtype |", "|---|---|---|", *rows, "",
                      f"PyTorch runs these {len(rest)} of core ATen itself: {', '.join(f'`{name}`' for name in rest)}.", "", ""])


def page() -> str:
    """The page as it should be."""
    return MARKED.sub(lambda _: written(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
