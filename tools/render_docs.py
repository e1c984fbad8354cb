"""Turn docs/ and tutorials/ into plain Markdown by running them, before mkdocs sees a page.

    python tools/render_docs.py docs tutorials build/docs

In:  pages (``.md``) and percent-format programs (``.py``). Out: Markdown that any site generator reads.

- ``{{ code minisitch/fuse.py make_plan }}`` becomes the source of that function, class or constant;
- a fence opened with ```` ```python run ```` is executed and followed by what it printed; the fences of
  one page share their names, as the cells of a notebook do; ```` ```python run quiet ```` shows the output alone;
- a tutorial's cells are executed the same way, and a cell that ends in an expression shows its value:
  as a picture where it has ``_repr_svg_`` or ``_repr_html_``, as text otherwise. Beside its page lie
  the program, and the same cells as a notebook (``.ipynb``), for download. Its part of ``tutorials/answers.md`` follows, folded;
- an assignment's handout becomes a page, with its hints folded below;
- ``reference.md`` gets a page for each room of the package, from the modules that are there.

An unknown symbol or an exception stops the build, so a page cannot drift from the code.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from minisitch.course import find_assignments  # noqa: E402

CODE = re.compile(r"^\{\{ code (\S+) (\S+) \}\}$", re.M)
FENCE = re.compile(r"^```python run( quiet)?\n(.*?)^```$", re.M | re.S)
CELL = re.compile(r"^# %%(.*)$", re.M)
ROOM = re.compile(r"^\| \[`(\w+)`\]\((reference/\w+\.md)\) \| (.+) \|$", re.M)


def symbol_source(path: str, name: str) -> str:
    """The text of one function, class or top-level constant of a file, by name (``Class.method`` too).

    Raises LookupError when the file has no such symbol.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    scope: list[ast.stmt] = ast.parse(text).body
    found: ast.stmt | None = None
    for part in name.split("."):
        found = next((node for node in scope if part in _names(node)), None)
        if found is None:
            raise LookupError(f"{path} has no {name!r}")
        scope = getattr(found, "body", [])
    assert found is not None
    first = min([found.lineno, *(d.lineno for d in getattr(found, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1:found.end_lineno])


def _names(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return tuple(t.id for t in targets if isinstance(t, ast.Name))


def run(code: str, names: dict[str, Any], file: str, line: int) -> str:
    """Execute code as if it stood at that line of that file; return what it showed, as Markdown."""
    tree = ast.parse(code, filename=file)
    ast.increment_lineno(tree, line - 1)
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    return _text(printed.getvalue()) + _shown(value)


def _text(text: str) -> str:
    """What was printed, in a fence; a program among it is coloured as one."""
    if not text.strip():
        return ""
    return f"\n```{'python' if _is_program(text) else 'text'} {{ .output }}\n{text.rstrip()}\n```\n"


def _is_program(text: str) -> bool:
    try:
        return any(isinstance(node, ast.FunctionDef) for node in ast.parse(text).body)
    except SyntaxError:
        return False


def _shown(value: Any) -> str:
    """A value as a notebook would show it: picture first, then HTML, then text."""
    for method in ("_repr_svg_", "_repr_html_"):
        picture = getattr(value, method, lambda: None)()
        if picture:  # Markdown ends an HTML block at an empty line
            return "\n<div class=\"picture\">\n" + re.sub(r"\n\s*\n", "\n", picture) + "\n</div>\n"
    return "" if value is None else _text(value if isinstance(value, str) else repr(value))


def render_page(text: str, file: str, names: dict[str, Any] | None = None) -> str:
    """Expand the code and run marks of one Markdown page. ``names``: what its fences know, if it goes on where cells end."""
    text = CODE.sub(lambda m: f"```python title=\"{m[1]}\"\n{symbol_source(m[1], m[2])}\n```", text)
    names = {"__name__": "__page__"} if names is None else names

    def execute(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start(2)) + 1
        output = run(match[2], names, file, line)
        return output.strip("\n") if match[1] else f"```python\n{match[2]}```\n{output}"

    return FENCE.sub(execute, text)


def cells(text: str) -> Iterator[tuple[str, str, int]]:
    """The cells of a percent-format program: kind ("markdown" or "code"), text, first line."""
    marks = [*CELL.finditer(text)]
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() + 1:following.start() if following else len(text)]
        line = text.count("\n", 0, mark.end()) + 2
        if "[markdown]" in mark[1]:
            yield "markdown", "\n".join(row.removeprefix("#").removeprefix(" ") for row in body.splitlines()), line
        elif body.strip():
            yield "code", body.strip("\n"), line + len(body) - len(body.lstrip("\n"))


def folded(title: str, text: str) -> str:
    """A part of a page that opens on a click."""
    return f'??? tip "{title}"\n\n{indent(text.strip(), "    ")}\n'


def answers(text: str) -> dict[str, str]:
    """The parts of ``answers.md`` by the name of their tutorial."""
    found = re.split(r"^## (\w+)\n", text, flags=re.M)
    return dict(zip(found[1::2], found[2::2], strict=True))


def render_handout(assignment: Any, variant: str) -> str:
    """An assignment as a page: the handout, as it reads in one variant, and the hints."""
    hints = [folded(f"Hint {n} gives away: {hint.gives_away}", hint.text) for n, hint in enumerate(assignment.hints, 1)]
    facts = f"{assignment.points:g} points, about {assignment.minutes} minutes, variant `{variant}`"
    return f"{assignment.text('handout.md', variant)}\n## Hints\n\n" + "\n".join(hints) + f"\n{facts}.\n"


def modules(package: Path) -> list[str]:
    """Every module of the package, by its dotted name."""
    paths = [path.relative_to(package.parent).with_suffix("") for path in package.rglob("*.py")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)


def render_room(room: str, what: str, known: list[str]) -> str:
    """The reference of one room: a part of the package with all its modules."""
    own = [name for name in known if name == f"minisitch.{room}" or name.startswith(f"minisitch.{room}.")]
    return f"# `{room}`\n\n{what[0].upper()}{what[1:]}.\n\n" + "\n".join(f"::: {name}\n" for name in own)


def render_tutorial(text: str, file: str, answer: str = "") -> str:
    """A percent-format program as a page: prose, code, and what each cell showed; then an answer to its task, folded."""
    names: dict[str, Any] = {"__name__": "__tutorial__", "__file__": file}
    page = []
    for kind, body, line in cells(text):
        page.append(body if kind == "markdown" else f"```python\n{body}\n```\n{run(body, names, file, line)}")
    if answer:
        page.append(folded("An answer to *Try*", render_page(answer, f"{file}, its answer", names)))
    name = Path(file).stem
    return "\n\n".join(page) + (f"\n\n---\n\nThis page is the output of `{file}`, executed when the page was built. "
                               f"Download it as a [notebook]({name}.ipynb) or as a [program]({name}.py).\n")


def notebook(text: str) -> str:
    """A percent-format program as a Jupyter notebook, without outputs."""
    made = []
    for number, (kind, body, _) in enumerate(cells(text)):
        outputs: dict[str, Any] = {"outputs": [], "execution_count": None} if kind == "code" else {}
        made.append({"cell_type": kind, "id": f"cell-{number}", "metadata": {},
                     "source": body.strip("\n").splitlines(keepends=True), **outputs})
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": python}, "cells": made}, indent=1) + "\n"


def build(docs: Path, tutorials: Path, out: Path) -> None:
    """Render every page and tutorial into a new folder."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(docs, out, ignore=shutil.ignore_patterns("*.md"))
    for page in sorted(docs.rglob("*.md")):
        target = out / page.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = render_page(page.read_text(encoding="utf-8"), f"docs/{page.relative_to(docs)}")
        target.write_text(text, encoding="utf-8")
    found = answers((tutorials / "answers.md").read_text(encoding="utf-8"))
    known = modules(ROOT / "minisitch")
    for folder in ("tutorials", "assignments", "reference"):
        (out / folder).mkdir(exist_ok=True)
    for each in find_assignments(tutorials / "assignments").values():
        (out / "assignments" / f"{each.name}.md").write_text(render_handout(each, each.variant), encoding="utf-8")
    for room, page, what in ROOM.findall((docs / "reference.md").read_text(encoding="utf-8")):
        (out / page).write_text(render_room(room, what, known), encoding="utf-8")
    for program in sorted(tutorials.glob("[0-9]*.py")):
        target = out / "tutorials" / program.with_suffix(".md").name
        text = program.read_text(encoding="utf-8")
        target.write_text(render_tutorial(text, f"tutorials/{program.name}", found.get(program.stem, "")), encoding="utf-8")
        target.with_suffix(".ipynb").write_text(notebook(text), encoding="utf-8")
        shutil.copy(program, target.with_suffix(".py"))


if __name__ == "__main__":
    build(*(Path(argument) for argument in sys.argv[1:4]))
