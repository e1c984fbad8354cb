"""The shape of the code base: imports point backwards, few importers of Numba, files and functions stay small."""

import ast
import io
import re
import sys
import tokenize
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "minisitch"

# The rooms in their order, as the package's docstring lists them: a line each, four spaces, the name, what it is for.
ROOMS = tuple(re.findall(r"^    (\w+) {2,}\S", ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))), re.M))
NUMBA = {"runtime/cpu/object_code", "runtime/cpu/atomics", "runtime/cpu/thread_pool", "runtime/cpu/primitives", "runtime/cpu/compile", "runtime/cuda/compile",
         "runtime/cuda/primitives"}  # who may import numba and llvmlite
MAX_ENTRIES = 26  # the door to PyTorch is a file of its own, loaded when it is asked for
MAX_FILE, MAX_FUNCTION = 500, 60

FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def module_of(path: Path) -> str:
    """``minisitch/stitch/loops.py`` is ``stitch.loops``; a folder's ``__init__.py`` has the folder's name, the package's none."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


MODULES = {module_of(path): path for path in FILES}


@cache
def parsed(text: str) -> ast.Module:
    """A program's tree. Several tests walk the same files."""
    return ast.parse(text)


def tree_of(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))


def room(module: str) -> str:
    return module.partition(".")[0]


def imports(path: Path, text: str) -> list[str]:
    """Modules of this package and foreign packages that a file imports, wherever it does: ``"stitch.loops"``, ``"/numba"``."""
    found = []
    folder = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = folder[:len(folder) - node.level + 1] if node.level else ()
            base = ".".join(["minisitch", *up, *filter(None, [node.module])]) if node.level else node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for each in names:
            first, _, rest = each.partition(".")
            if first != "minisitch":
                found.append("/" + first)
                continue
            while rest not in MODULES:  # the last part is a function or a class
                rest = rest.rpartition(".")[0]
            found.append(rest)
    return list(dict.fromkeys(found))


def backward(importer: str, imported: str) -> bool:
    """Whether a room may import another: one that the docstring lists before it."""
    order = [*ROOMS[:-1], "", ROOMS[-1]]  # the package itself comes after all rooms, before the command line
    return importer == imported or order.index(imported) < order.index(importer)


def circles(edges: dict[str, list[str]]) -> list[str]:
    """Modules on a circle of imports."""
    left = {module: {each for each in found if each != module} for module, found in edges.items()}
    while free := [module for module, found in left.items() if not found & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


def test_the_docstring_lists_all_rooms():
    entries = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(ROOMS) == entries - {"__init__"} and len(ROOMS) == len(set(ROOMS))
    assert len([p for p in PACKAGE.iterdir() if p.name != "__pycache__"]) <= MAX_ENTRIES


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_backwards(path):
    for imported in imports(path, path.read_text(encoding="utf-8")):
        if not imported.startswith("/"):
            assert backward(room(module_of(path)), room(imported)), f"{name(path)} imports {imported}, of a later room"


def test_no_imports_go_in_circles():
    edges = {module: [i for i in imports(path, path.read_text(encoding="utf-8")) if i in MODULES] for module, path in MODULES.items()}
    assert circles(edges) == []
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": [], "e": ["a"]}) == ["a", "b", "c", "e"]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_only_the_compilers_import_numba(path):
    foreign = {i for i in imports(path, path.read_text(encoding="utf-8")) if i in ("/numba", "/llvmlite")}
    assert name(path).removesuffix(".py") in NUMBA or not foreign, f"{name(path)} imports {foreign}; only {NUMBA} may"


def test_no_property_has_a_lock():
    """Python 3.11's ``functools.cached_property`` has one for all objects of a class: a forked child would wait for it (``errors.lazy``)."""
    found = {name(path) for path in FILES if re.search(r"^ *@(functools\.)?cached_property", path.read_text(encoding="utf-8"), re.MULTILINE)}
    assert found <= {"trace/__init__.py"}


def test_a_reversed_import_is_seen():
    path = PACKAGE / "graph.py"
    assert imports(path, "from .fuse import plan\nimport numba.cuda\nfrom . import simt") == ["fuse", "/numba", "simt"]
    assert not backward("graph", "fuse")
    inner = PACKAGE / "strategies" / "astitch.py"
    assert imports(inner, "from ..stitch import x\nfrom .xla import y\nfrom minisitch.graph import z") == [
        "stitch", "strategies.xla", "graph"]


def test_no_two_classes_or_aliases_have_one_name():
    """A reader who sees a name knows the class without looking at the imports."""
    homes: dict[str, set[str]] = {}
    for path in FILES:
        for node in tree_of(path).body:
            names = ([node.name] if isinstance(node, ast.ClassDef) else
                     [x.id for x in node.targets if isinstance(x, ast.Name) and not x.id.isupper() and x.id.strip("_")[:1].isupper()]
                     if isinstance(node, ast.Assign) else [])
            for each in names:
                homes.setdefault(each, set()).add(name(path))
    assert {each: found for each, found in homes.items() if len(found) > 1} == {}


# What several files need, and the one that defines it: nowhere else is anything called so, with an underscore or without.
HOMES = {"LINE": "device.py", "SECTOR": "device.py", "returned": "fuse.py", "upstream": "stitch/dominants.py",
         "plan_us": "strategies/prices.py", "pattern_us": "strategies/prices.py"}


@pytest.mark.parametrize("word", HOMES)
def test_what_several_files_need_has_one_home(word):
    found = []
    for path in FILES:
        body = tree_of(path).body
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
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


@pytest.mark.parametrize("path", FILES, ids=name)
def test_files_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    lines = code_lines(text)
    assert len(lines) <= MAX_FILE, f"{name(path)} has {len(lines)} code lines: two files, never denser lines"
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(lines & set(range(node.lineno, node.end_lineno + 1)))
            assert size <= MAX_FUNCTION, f"{name(path)}: {node.name} has {size} code lines"


def test_code_lines_are_counted_without_words():
    text = '"""Doc\n\nstring."""\n# comment\n\nx = 1  # yes\n\ndef f():\n    """No."""\n    return """a\nb"""\n'
    assert code_lines(text) == {6, 8, 10, 11}


# ---------------------------------------------------------------- tests
def patched_private_names(text: str) -> list[str]:
    """Private names of other files that a test replaces, by ``setattr``, by ``mock.patch`` or by an assignment."""
    def is_private(name: str) -> bool:
        return name.startswith("_") and not name.startswith("__")

    found = []
    for node in ast.walk(parsed(text)):
        match node:
            case ast.Call(ast.Attribute(attr="setattr" | "delattr" | "object"), [_, ast.Constant(str(name)), *_]) if is_private(name):
                found.append(name)
            case ast.Call(ast.Attribute(attr="setattr" | "patch"), [ast.Constant(str(path)), *_]) if is_private(path.rpartition(".")[2]):
                found.append(path)
            case ast.Call(ast.Attribute(attr="setitem" | "delitem" | "dict"), [ast.Attribute(attr=name), *_]) if is_private(name):
                found.append(name)
            case ast.Assign(targets=[ast.Attribute(ast.Name(owner), name)]) if is_private(name) and owner not in ("self", "cls"):
                found.append(f"{owner}.{name}")
    return found


def test_no_test_replaces_a_private_name():
    """A fault that a test must find is in ``tools/mutants.py``, where it is put into the text of a copy."""
    found = {path.name: names for path in sorted(Path(__file__).parent.glob("*.py")) if (names := patched_private_names(path.read_text("utf-8")))}
    assert found == {}
    for text in ("p.setattr(m, '_f', 1)", "p.setattr('m._f', 1)", "patch.object(m, '_f')", "m._f = 1", "p.setitem(m._F, 'k', 1)"):
        assert patched_private_names(text)
    assert not patched_private_names("p.setattr(m, 'f', 1)\nself._x = 1\nm.__dict__ = 1\np.setattr(sys, 'path', [])")


def test_each_mutant_has_its_place_and_its_tests():
    root = PACKAGE.parent
    sys.path.insert(0, str(root / "tools"))
    from mutants import MUTANTS, edits
    for mutant in MUTANTS:
        for path, text in edits(mutant).items():
            compile(text, path, "exec")
            assert text != (root / path).read_text("utf-8")
        for test in mutant.tests:
            file, _, function = test.partition("::")
            assert f"def {function}" in (root / file).read_text("utf-8"), test
