"""Each tutorial is a program: it runs from start to end in a process of its own, warnings are errors. Its notebook has its cells."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from children import run

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from render_docs import cells, notebook  # noqa: E402

TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))
MOST_LINES, MOST_COLUMNS, MOST_SECONDS = 30, 110, 20
SHORT_ENOUGH = 60  # minutes for 00 to 06

# Runs the code cells of a program one after the other, as the program that they are, with its name and lines. Says what each
# printed, and the time of the processor.
DRIVER = """
import contextlib, io, json, sys, time
program, names, printed = sys.argv[1], {"__name__": "__main__", "__file__": sys.argv[1]}, []
for body, line in json.load(open("cells.json", encoding="utf-8")):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile("\\n" * (line - 1) + body, program, "exec"), names)
    printed.append(out.getvalue())
json.dump({"printed": printed, "seconds": time.process_time()}, sys.stdout)
"""


class Ran(NamedTuple):
    printed: list[str]
    seconds: float


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What the cells of a tutorial print when it runs; each is run once."""
    @cache
    def once(program: Path) -> Ran:
        folder = tmp_path_factory.mktemp(program.stem)
        code = [(body, line) for kind, body, line in cells(program.read_text(encoding="utf-8")) if kind == "code"]
        (folder / "cells.json").write_text(json.dumps(code), encoding="utf-8")
        done = run(DRIVER, folder, str(program))
        assert done.returncode == 0, done.stderr
        return Ran(**json.loads(done.stdout))

    return once


def prose(program: Path) -> str:
    """The words of a tutorial, without line ends."""
    return " ".join(body for kind, body, _ in cells(program.read_text(encoding="utf-8")) if kind == "markdown").replace("\n", " ")


def new_words(program: Path) -> list[str]:
    """The words that a tutorial says it introduces."""
    return re.search(r"\*\*New words\*\*: ([^.]+)\.", prose(program))[1].split(", ")


def minutes(program: Path) -> int:
    return int(re.search(r"^#.*? (\d+) minutes\.", prose(program))[1])


def before_their_tutorial(texts: dict[str, str], introduced: dict[str, list[str]]) -> list[str]:
    """Words that a tutorial uses before the one that introduces them."""
    found = []
    for number, (name, text) in enumerate(texts.items()):
        later = [word for words in list(introduced.values())[number + 1:] for word in words]
        found += [f"{name}: {word}" for word in later if re.search(rf"\b{re.escape(word)}(s|es)?\b", text, re.I)]
    return found


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_it_runs_and_no_cell_prints_much(program, ran):
    printed, seconds = ran(program)
    assert seconds < MOST_SECONDS
    for text in printed:
        lines = text.splitlines()
        assert len(lines) <= MOST_LINES, "\n".join(lines)
        assert max(map(len, lines), default=0) <= MOST_COLUMNS, max(lines, key=len)


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_is_cells_that_end_in_a_check_and_a_task(program):
    """Percent format opens as a notebook; a lesson that asserts nothing cannot break, so it rots."""
    text = program.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    kinds = [(kind, body) for kind, body, _ in cells(text)]
    assert kinds[-1][0] == "markdown" and "**Try.**" in kinds[-1][1]
    assert "assert " in kinds[-2][1], "the last code cell asserts"


def test_no_word_comes_before_the_tutorial_that_introduces_it(ran):
    texts = {p.stem: p.read_text(encoding="utf-8") + "\n".join(ran(p).printed) for p in TUTORIALS}
    introduced = {p.stem: new_words(p) for p in TUTORIALS}
    words = [word for found in introduced.values() for word in found]
    assert len(words) == len(set(words)) and {"thread", "block", "warp", "barrier", "register", "shared memory"} <= set(words)
    assert before_their_tutorial(texts, introduced) == []
    assert before_their_tutorial({"a": "two Threads", "b": ""}, {"a": [], "b": ["thread"]}) == ["a: thread"]


def test_every_word_of_the_tutorials_is_explained_on_a_page():
    """As a heading, or in bold."""
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8").lower() for name in ("words.md", "tutorials.md"))
    explained = " ".join([*re.findall(r"^## (.+)$", page, re.M), *re.findall(r"\*\*(.+?)\*\*", page)])
    missing = [word for p in TUTORIALS for word in new_words(p) if not re.search(rf"\b{word}(s|es)?\b", explained)]
    assert not missing


def test_the_first_seven_take_an_hour():
    assert sum(minutes(p) for p in TUTORIALS if p.stem < "07") <= SHORT_ENOUGH


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_its_notebook_has_the_cells_of_the_program(program):
    text = program.read_text(encoding="utf-8")
    found = json.loads(notebook(text))["cells"]
    assert [(c["cell_type"], "".join(c["source"])) for c in found] == [(kind, body.strip("\n")) for kind, body, _ in cells(text)]
    assert len({c["id"] for c in found}) == len(found)


def test_a_notebook_has_cells_that_run():
    found = json.loads(notebook("# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 1\n\nx\n"))
    assert found["nbformat"] == 4 and [c["cell_type"] for c in found["cells"]] == ["markdown", "code"]
    assert ["".join(c["source"]) for c in found["cells"]] == ["# Title\n\nWords.", "x = 1\n\nx"]


def test_the_page_of_tutorials_lists_them_all_with_their_minutes():
    page = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
    for program in TUTORIALS:
        link = f"(tutorials/{program.stem}.md)"
        line = next((row for row in page.splitlines() if link in row), "")
        assert f"| {minutes(program)} |" in line and f"{program.stem}.ipynb" in line, program.stem
