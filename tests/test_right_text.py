"""Text from outside never becomes code: names of files, functions and classes, keys, graphs' attributes, entries of the disk cache."""

from __future__ import annotations

import ast
import collections
import dataclasses
import pickle
import time
import tokenize
import types
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from sources import executed

import minisitch as ms
from minisitch import cpu_emit, cuda_emit, graph
from minisitch.graph import Node, TensorType
from minisitch.passes.registry import default_kernel
from minisitch.runtime import plans, store
from minisitch.runtime.cpu import compile as cpu_compile
from minisitch.stitch.loops import stitch
from minisitch.trace.builder import Builder
from minisitch.trace.parser import parse

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
EVIL = ["a\nimport os; os.pwned = 1\n#", "a\rpwned = 1", "a\x0cb", "a\u2028pwned = 1", "a\x00b", "a\x1b[31m", "\u202ea", "\udc80.py",
        "'); import os #", "\"\"\"", "{pwned}", "%s %(a)s", "# in b", "</pre><script>alert(1)</script>", "a\\\n", "ªﬁσ", "1a b"]


def evil_function(name: str, body: str = "np.exp(x - np.max(x, axis=-1, keepdims=True)) * 2"):
    """A function whose file and whose own name are such a text."""
    space = {"np": np}
    executed(f"def f(x):\n    return {body}\n", space)
    return types.FunctionType(space["f"].__code__.replace(co_name=name, co_qualname=name, co_filename=name), space, "f")


def only_comments_differ(text: str, plain: str) -> bool:
    """Whether two programs are the same to Python."""
    ids = str.maketrans("", "")
    return ast.dump(ast.parse(text)).translate(ids) == ast.dump(ast.parse(plain)).translate(ids)


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("target", ["python", "step"])
def test_names_of_files_and_functions_stay_comments(name, target):
    f = evil_function(name)
    assert np.allclose(ms.jit(f, target=target)(X), f(X))
    for strategy in ("astitch", "none"):
        evil = ms.lower(f, X, target=target, strategy=strategy)
        plain = ms.lower(evil_function("f"), X, target=target, strategy=strategy)
        for a, b in zip(evil, plain, strict=True):
            assert a.kernel.name.isascii() and a.kernel.name.isidentifier()
            assert only_comments_differ(a.text.replace(a.kernel.name, "k"), b.text.replace(b.kernel.name, "k"))
            assert all(each.isprintable() for each in a.text.split("\n"))


@pytest.mark.parametrize("name", EVIL)
def test_a_graph_with_such_names_prints_and_reads_back(name):
    program = ms.trace(evil_function(name), (X,))
    text = str(program.graph)
    assert len(text.split("\n")) == len(program.graph) + 1 == len(text.splitlines())
    assert parse(text).structure == program.graph.structure
    node = Node(0, "input", (), TensorType((3,)), (("name", name),), name, name)
    assert str(node).isprintable()
    assert parse(f"{node}\nreturn %0").nodes[0].attr("name") == name


@pytest.mark.parametrize("name", EVIL)
def test_pages_and_pictures_escape_such_names(name):
    report = ms.explain(evil_function(name), X, strategy="astitch", target="python")
    for page in (report.html, report.svg):
        assert "<script" not in page and "\x00" not in page and "\x1b" not in page
    table = ms.compare(evil_function(name), X, target="python", strategies=("none",), seconds=0.01)
    assert "<script" not in table._repr_html_()


@pytest.mark.parametrize("emit, device", [(cpu_emit.emit, "cpu"), (cuda_emit.emit, "h100")])
@pytest.mark.parametrize("name", EVIL)
def test_names_of_a_built_graph_stay_comments(name, emit, device):
    b = Builder()
    x = b.add("input", type=TensorType((3, 4)), name=name)
    made = b.finish([b.add("sum", [b.add("exp", [x], where=name, via=name)], where=name, axes=(1,), keepdims=True)])
    source = emit(default_kernel(stitch(made, ms.get_device(device))))
    comments = [t.string for t in tokenize.generate_tokens(StringIO(source.text).readline) if t.type == tokenize.COMMENT]
    assert all(c.isprintable() for c in comments) and "pwned = 1" not in ast.unparse(ast.parse(source.text))


# ---------------------------------------------------------------- results' names
def nested(kind, *names):
    return collections.namedtuple(kind, names or ("first", "second"))


@pytest.mark.parametrize("kind", ["leaves", "into", "nested", "memory", "thread", "call", "workspace", "a0", "r1", "m2", "v3", "np", "ndarray",
                                  "fresh", "static", "key", "READY", "float32", "dtype_bool", "len", "softmax"])
def test_a_class_of_results_may_have_any_name(kind):
    made = nested(kind)

    def f(x):
        return made(x + 1, {"a b": x * 2, "x\n'\"": made(x, 3), 7: [x]})
    got = ms.jit(f, target="python")(X)
    want = f(X)
    assert type(got) is made and (got.first == want.first).all() and type(got.second["x\n'\""]) is made


@pytest.mark.parametrize("name", ["class", "import", "None", "a;b", "a\nb", "ªﬁ", "1a", "", "__builtins__"])
def test_a_class_may_be_called_what_is_no_name(name):
    class Pair(nested("Pair")):
        pass
    Pair.__name__ = name

    def f(x):
        return Pair(x + 1, x)
    assert type(ms.jit(f, target="python")(X)) is Pair


@pytest.mark.parametrize("name", ["class", "len", "type", "read", "a0", "v0", "Stale", "a;b", "x\npwned()", "ªﬁ", "__class__x"])
def test_what_is_read_from_outside_may_be_called_anything(name):
    """A call reads it anew by a text of its own (``trace/reads.py``): names of classes, functions and attributes are in it."""
    class Net:
        pass
    Net.__name__ = name
    net = Net()
    setattr(net, name, np.ones(4, np.float32))
    net.parts = [Net(), {name: 2.0}]

    def scale(x):
        return x * getattr(net, name) * net.parts[1][name]
    scale.__name__ = name
    f = ms.jit(lambda x: scale(x) + 1, target="python")
    for value in (1, 3):
        setattr(net, name, np.full(4, value, np.float32))
        assert (f(X) == X * value * 2 + 1).all()
    net.parts[1][name] = 5.0
    assert (f(X) == X * 15 + 1).all()


# ---------------------------------------------------------------- graphs as text
HEAD = "%0: f32[3] = input name='x'\n"
NASTY = {
    "%1: f32[3] = ufunc %0 name='load' output=0\nreturn %1": "'load' is not an elementwise ufunc of NumPy",
    "%1: f32[3] = ufunc %0 name='fromfile' output=0\nreturn %1": "not an elementwise ufunc",
    "%1: f32[3] = ufunc %0 name='matmul' output=0\nreturn %1": "not an elementwise ufunc",
    "%1: f32[3] = ufunc %0 name='vectorize' output=0\nreturn %1": "not an elementwise ufunc",
    "%1: f32[3] = ufunc %0 name='__loader__' output=0\nreturn %1": "not an elementwise ufunc",
    "%1: f32[3] = ufunc %0 name='arctan2' output=0\nreturn %1": "takes 2 of one shape",
    "%1: f32[3] = ufunc %0 name='frexp' output=2\nreturn %1": "has no output 2",
    "%1: f32[3] = ufunc %0 name='gcd' output=0\nreturn %1": "takes 2",
    "%1: f32[3] = ufunc %0 name=7 output=0\nreturn %1": "wrong kind|not an elementwise ufunc",
    "%1: f32[3] = ufunc %0 name='invert' output=0\nreturn %1": "wrong kind",
    "%1: f32[3] = exp %0 where=False\nreturn %1": "has no attribute 'where'; it has none",
    "%1: f32[3] = exp %0 out='x'\nreturn %1": "has no attribute 'out'",
    "%1: f32[3] = sort %0 axis=0 kind='evil'\nreturn %1": "has no attribute 'kind'; it has axis",
    "%1: f32[3] = sort %0 axis=0.0\nreturn %1": "axis=0.0, but an attribute is a number, a string or a tuple",
    "%1: f32[1] = sum %0 axes=(0,) keepdims=True dtype='object'\nreturn %1": "has no attribute 'dtype'",
    "%1: f32[1] = sum %0 axes=('0',) keepdims=True\nreturn %1": "an attribute is a number, a string or a tuple of integers",
    "%1: f32[3] = exp %0 **{'a': 1}\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = exp %0 *(1,)\nreturn %1": "cannot read",
    "%1: f32[3] = exp %0 a=__import__('os')\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = exp %0 a=(lambda: 1)()\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = exp %0 a=9**9**9\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = exp %0 a=" + "(" * 5000 + ")" * 5000 + "\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = exp %0 a=" + "-" * 50_000 + "1\nreturn %1": "cannot read the attributes",
    "%1: f32[" + "9" * 5000 + "] = exp %0\nreturn %1": "cannot read",
    "%" + "1" * 5000 + ": f32[3] = exp %0\nreturn %1": "cannot read",
    "%1: f32[3] = exp %" + "1" * 5000 + "\nreturn %1": "cannot read",
    "%1: f32[3] = exp %0\nreturn %7": "do not all exist",
    "%1: f32[3] = exp %0\nreturn %1\n%2: f32[3] = exp %0 '": "cannot read",
    "%1: f32[3] = exp %0 " + "'a" * 20_000 + "\nreturn %1": "cannot read",
    "%1: f32[3] = exp %0 " + "a='b' " * 5_000 + "\nreturn %1": "has no attribute 'a'",
    "%1: f32[3] = exp %0) or f(a=1\nreturn %1": "cannot read",
    "%1: f32[3] = exp %0 a=f'{1}'\nreturn %1": "cannot read the attributes",
    "%1: f32[3] = constant value=nan**2\nreturn %1": "cannot read",
    "%1: f32[3] = constant value=not inf\nreturn %1": "cannot read",
    "%1: f32[3] = eval %0\nreturn %1": "unknown op 'eval'",
    "%1: f32[3] = __class__ %0\nreturn %1": "unknown op",
    "%1: object[3] = exp %0\nreturn %1": "cannot read",
    "%1: f32[3] = cast %0 dtype='object'\nreturn %1": "unknown dtype",
    "%1: f32[3] = scatter %0 %0 %0 axes=(0,) mode='evil'\nreturn %1": "unknown mode|must be integers|indices",
}


@pytest.mark.parametrize("text", NASTY, ids=lambda text: text[:60])
def test_a_graph_that_says_more_than_a_graph_is_refused(text):
    began = time.process_time()
    with pytest.raises(ms.GraphError, match=NASTY[text]):
        parse(HEAD + text)
    assert time.process_time() - began < 2


def test_every_ufunc_that_the_tracer_makes_is_one():
    for name in ("cbrt", "nextafter", "spacing", "frexp", "ldexp", "gcd", "bitwise_count", "rint", "copysign", "hypot"):
        ufunc = getattr(np, name)
        kinds = [each.partition("->")[0] for each in ufunc.types]
        given = next(k for k in kinds if not set(k) & set("OFDGegMmSU?"))
        args = [np.ones(3, c) for c in given]
        made = ms.trace(lambda *a, ufunc=ufunc: ufunc(*a), args).graph
        assert parse(str(made)) == made


# ---------------------------------------------------------------- the disk
class Pwned:
    def __reduce__(self):
        return exec, ("raise SystemExit('an entry was unpickled')",)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.delenv("MINISITCH_PLANS")
    monkeypatch.setattr(plans, "WORTH_KEEPING_S", 0.0)
    store._checked_folder.cache_clear()
    yield tmp_path
    store._checked_folder.cache_clear()


def entries(folder: Path) -> list[Path]:
    return [each for kind in store.ENTRIES for each in folder.glob(f"*{kind}")]


@pytest.mark.parametrize("harm", ["unsigned", "appended", "cut", "empty", "renamed", "signed with another secret"])
def test_an_entry_that_is_not_signed_is_never_unpickled(cache, harm):
    """Plans are pickles: only what this user signed with the folder's secret, under this very name, is read."""
    f = ms.jit(lambda x: np.exp(x) / x.sum(), target="python")
    f(X)
    kept = entries(cache)
    assert kept
    evil = pickle.dumps(Pwned())
    for each in kept:
        blob = each.read_bytes()
        each.write_bytes({"unsigned": evil, "appended": blob + evil, "cut": blob[:-1], "empty": b"", "renamed": b"",
                          "signed with another secret": store.hmac.digest(b"0" * 32, each.name.encode() + evil, "sha256") + evil}[harm])
    if harm == "renamed":
        content = store.hmac.digest(store._secret(cache), b"other.plan" + evil, "sha256") + evil
        for each in kept:
            each.write_bytes(content)
    again = ms.jit(lambda x: np.exp(x) / x.sum(), target="python")
    assert np.allclose(again(X), np.exp(X) / X.sum())


def test_a_secret_that_others_may_read_signs_nothing(cache):
    secret = cache / "secret"
    assert store.folder() == cache and secret.stat().st_mode & 0o077 == 0
    secret.chmod(0o644)
    store._checked_folder.cache_clear()
    with pytest.warns(UserWarning, match="open to other users"):
        assert store.folder() is None


def test_a_node_is_still_a_value():
    node = Node(0, "exp", (), TensorType(()), (), "a.py:1\n", "f")
    assert node.where == "a.py:1\\n" and dataclasses.replace(node, id=1).where == node.where and graph.printable("a\tb") == "a\\tb"


def test_files_of_numbas_own_cache_are_unpickled_only_if_this_user_signed_them(tmp_path, monkeypatch):
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path / "cache"))
    text = store.folder() / "abc.py"
    index = text.parent / "__pycache__" / "abc.start-2.py311.nbi"
    index.parent.mkdir()
    for content, signed in ((b"foreign", False), (b"ours", True), (b"ours", True), (b"tampered", False)):
        index.write_bytes(content)
        cpu_compile._forget_unsigned(text)
        assert index.exists() == signed or content == b"ours"
        if content == b"ours":
            index.write_bytes(content)
            cpu_compile._sign(text)
            cpu_compile._forget_unsigned(text)
            assert index.exists()
