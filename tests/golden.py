"""Golden texts: what a stage printed when a person last read it, in ``tests/golden/NAME.txt``.

    def test_softmax_prints(golden):
        golden("softmax_graph", str(graph))

``pytest --update-golden`` writes the files; read the diff before committing it. Lines of test files have no number there,
since a test moves when another is written above it.
"""

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"


def compare(path: Path, text: str, update: bool) -> None:
    """Hold a text to its file, or write the file."""
    text = re.sub(r"((?:test_\w+|stitch_help|programs)\.py):\d+", r"\1:N", text.rstrip()) + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    if not path.exists():
        pytest.fail(f"no golden text {path.name} yet: run pytest --update-golden and read it")
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        diff = "\n".join(difflib.unified_diff(expected.splitlines(), text.splitlines(), path.name, "now", lineterm=""))
        pytest.fail(f"{diff}\n\nIf the new text is right: pytest --update-golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function of a name and a text that fails with a diff when the text changed."""
    update = request.config.getoption("--update-golden")
    return lambda name, text: compare(FOLDER / f"{name}.txt", text, update)
