"""Count code lines: what is left of a file without comments, docstrings and blank lines.

    python tools/size.py

Prints each file's lines, and the figures that BUDGETS bounds. The road and the afternoon path are found from imports, so nothing
that they need can be left out. Comments and docstrings are free: nobody gains by leaving one out. A bound is lowered when less is
needed; to raise one takes a sentence in the commit message.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "minisitch"
FILE_BUDGET = 500
# What a graph meets on its way to the CUDA text of a kernel that AStitch stitched: these, and all that they import.
ROAD = ("strategies.astitch", "stitch.body", "stitch.loops", "schedule", "kernel.verify", "cuda_emit")
# What a student reads in an afternoon to know how it works: these files alone.
AFTERNOON = ("graph", "fuse", "strategies.astitch", "stitch.dominants", "stitch.subroots", "stitch.mapping", "stitch.plan",
             "stitch.loops", "kernel", "kernel.ir", "kernel.verify", "schedule", "cuda_emit", "lower")
BUDGETS = {
    "package, code lines": 26_500,  # without course/ and the explorer, which have bounds of their own
    "course, code lines": 2_400,
    "explorer, code lines": 750,
    "road, code lines": 4_100,
    "afternoon path, code lines": 2_100,
    "road, tokens a code line": 11,
    "package, lines over 100 columns, percent": 2.8,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """The line numbers that docstrings cover."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def code_lines(text: str) -> int:
    """How many lines of a Python program hold code."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
              tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def tokens(text: str) -> int:
    """How many tokens a program has: names, numbers, strings, operators."""
    meant = {tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP}
    documented = docstring_lines(ast.parse(text))
    return sum(t.type in meant and t.start[0] not in documented for t in tokenize.generate_tokens(io.StringIO(text).readline))


def path_of(module: str) -> Path:
    """The file of a module of the package, ``"stitch.loops"``."""
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> set[str]:
    """Modules of the package that a module imports by relative imports, wherever in it."""
    path = path_of(module)
    folder = path.parent.relative_to(PACKAGE.parent).parts[1:]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*folder[:len(folder) - node.level + 1], *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{base}.{alias.name}".strip(".")
                found.add(inner if path_of(inner).exists() else base)
    return found


def closure(modules: Iterable[str]) -> list[str]:
    """The modules and all that they import, directly or not."""
    found: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += imported(module)
    return sorted(found)


def figures() -> dict[str, float]:
    """What BUDGETS bounds, as it is now."""
    course, explorer = PACKAGE / "course", PACKAGE / "explain" / "explore"
    taught, explored = ([path.read_text(encoding="utf-8") for path in room.rglob("*.py")] for room in (course, explorer))
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")
             if course not in path.parents and explorer not in path.parents]
    road = [path_of(module).read_text(encoding="utf-8") for module in closure(ROAD)]
    afternoon = [path_of(module).read_text(encoding="utf-8") for module in AFTERNOON]
    lines = [line for text in texts for line in text.splitlines()]
    road_lines = sum(map(code_lines, road))
    return {
        "package, code lines": sum(map(code_lines, texts)),
        "course, code lines": sum(map(code_lines, taught)),
        "explorer, code lines": sum(map(code_lines, explored)),
        "road, code lines": road_lines,
        "afternoon path, code lines": sum(map(code_lines, afternoon)),
        "road, tokens a code line": sum(map(tokens, road)) / road_lines,
        "package, lines over 100 columns, percent": 100 * sum(len(line) > 100 for line in lines) / len(lines),
    }


def main(folders: list[str]) -> None:
    """Print one line a file and the total of each folder, then each budget."""
    for folder in folders:
        sizes = {path: code_lines(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).rglob("*.py"))}
        for path, size in sizes.items():
            print(f"{size:6}  {path}" + ("   over the budget of a file" if size > FILE_BUDGET else ""))
        print(f"{sum(sizes.values()):6}  {folder}/ in all\n")
    print("the road:", " ".join(closure(ROAD)), "\n")
    for what, now in figures().items():
        print(f"{now:10,.1f}  {what} (at most {BUDGETS[what]:,})")


if __name__ == "__main__":
    main(sys.argv[1:] or ["minisitch", "tests", "tools", "tutorials"])
