"""Each tutorial is a program: it runs from start to end in a process of its own, warnings are errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))


def run(program: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program file, or text, as a reader would: from an empty folder, with nothing left over from other tests."""
    arguments = ["-c", program] if isinstance(program, str) else [str(program)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_runs(program, tmp_path):
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_tutorial_is_cells_that_end_in_a_check(program):
    """Percent format opens as a notebook; a lesson that asserts nothing cannot break, so it rots."""
    text = program.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    cells = [cell for cell in text.split("\n# %%")[1:] if not cell.startswith(" [markdown]")]
    assert "assert " in cells[-1], "the last code cell asserts"
