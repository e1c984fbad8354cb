"""The shape of the code base: imports point backwards, one importer of Numba, files and functions stay small."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "minisitch"

# From what imports nothing of ours to what imports all. A folder counts as its name.
ORDER = (
    "errors", "progress", "undisturbed", "store", "ops", "graph", "parser", "index", "trace", "reference", "windows", "roll", "simplify", "device", "this_machine",
    "fuse", "mapping", "online", "groups", "keeping", "triples", "sinks", "stitch", "blocks", "restitch", "kernel", "verify", "layout", "statements", "loops", "reuse", "together",
    "wide", "schedule", "cost", "build", "launches", "cuda_product", "dataflow", "strategies", "regions", "optimum", "source",
    "cuda_math", "cuda_order", "cpu_math", "cuda_emit", "cuda_pipeline", "cpu_emit", "simt", "machine_code", "cpu_primitives", "compile", "cuda_wide", "cuda_compile", "cuda_link", "offline",
    "crew", "workers", "runtime", "explain",
    "testing", "__init__", "calibrate", "demo", "doctor", "__main__",
)
NUMBA = {"machine_code", "cpu_primitives", "compile", "cuda_compile", "cuda_order", "cuda_wide"}  # who may import numba and llvmlite
MAX_FILE, MAX_FUNCTION = 500, 60

FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def layer(path: Path) -> str:
    """The name in ORDER that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imports(path: Path, text: str) -> list[str]:
    """Layers of this package and foreign packages that a file imports: ``"graph"``, ``"/numba"``."""
    found = []
    folder = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = folder[:len(folder) - node.level + 1] if node.level else ()
            base = ".".join(["minisitch", *up, *filter(None, [node.module])]) if node.level else node.module or ""
            modules = [f"{base}.{alias.name}" for alias in node.names] if base == "minisitch" else [base]
        else:
            continue
        for module in modules:
            first, *rest = module.split(".")
            found.append("/" + first if first != "minisitch" else rest[0] if rest else "__init__")
    return found


def backward(importer: str, imported: str) -> bool:
    return imported == importer or ORDER.index(imported) < ORDER.index(importer)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_backwards(path):
    assert layer(path) in ORDER, f"{name(path)} has no place in ORDER: decide what it may import, and add it"
    for imported in imports(path, path.read_text(encoding="utf-8")):
        if imported.startswith("/"):
            continue
        is_file = (PACKAGE / imported).exists() or (PACKAGE / f"{imported}.py").exists()
        known = imported if is_file or imported in ORDER else "__init__"  # `from . import jit`
        assert known in ORDER, f"{name(path)} imports {imported}, which has no place in ORDER"
        assert backward(layer(path), known), f"{name(path)} imports {imported}, a later layer"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_only_the_compilers_import_numba(path):
    foreign = {i for i in imports(path, path.read_text(encoding="utf-8")) if i in ("/numba", "/llvmlite")}
    assert layer(path) in NUMBA or not foreign, f"{name(path)} imports {foreign}; only {NUMBA} may"


def test_a_reversed_import_is_seen():
    path = PACKAGE / "graph.py"
    assert imports(path, "from .fuse import plan\nimport numba.cuda\nfrom . import simt") == ["fuse", "/numba", "simt"]
    assert not backward("graph", "fuse")
    inner = PACKAGE / "strategies" / "astitch.py"
    assert imports(inner, "from ..stitch import x\nfrom .xla import y\nfrom minisitch.graph import z") == [
        "stitch", "strategies", "graph"]


# What several files need, and the one that defines it: nowhere else is anything called so, with an underscore or without.
HOMES = {"LINE": "device.py", "SECTOR": "device.py", "returned": "fuse.py", "upstream": "groups.py", "plan_us": "build.py", "pattern_us": "build.py"}


@pytest.mark.parametrize("word", HOMES)
def test_what_several_files_need_has_one_home(word):
    found = []
    for path in FILES:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node in [*body, *(inner for outer in body if isinstance(outer, ast.ClassDef) for inner in outer.body)]:
            names = ([node.name] if isinstance(node, ast.FunctionDef) else
                     [x.id for target in node.targets for x in ast.walk(target) if isinstance(x, ast.Name)]
                     if isinstance(node, ast.Assign) else [])
            found += [name(path) for each in names if each.lstrip("_") == word]
    assert found == [HOMES[word]]


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold code: no comments, docstrings or blank lines."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    lines = code_lines(text)
    assert len(lines) <= MAX_FILE, f"{name(path)} has {len(lines)} code lines: two files, never denser lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(lines & set(range(node.lineno, node.end_lineno + 1)))
            assert size <= MAX_FUNCTION, f"{name(path)}: {node.name} has {size} code lines"


def test_code_lines_are_counted_without_words():
    text = '"""Doc\n\nstring."""\n# comment\n\nx = 1  # yes\n\ndef f():\n    """No."""\n    return """a\nb"""\n'
    assert code_lines(text) == {6, 8, 10, 11}
