"""``python -m minisitch demo --train``: a GPT that learns."""

import io

import numpy as np
import pytest

import minisitch as ms
from minisitch.errors.nearest import UsageError
from minisitch.explain import train
from minisitch.explain.demo import make_weights

TEXT = b"to be or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 4


def losses(target, steps=6):
    """The loss of each step of a tiny model."""
    weights, draw = make_weights(8, 16), train.batches(TEXT, 2, 16)
    means, squares = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    step = ms.jit(train.step, strategy="astitch", target=target)
    return [float(step(weights, means, squares, *draw(), 0.01)) for _ in range(steps)]


def test_the_loss_falls_as_the_uncompiled_program_s_does():
    found, expected = losses("python"), losses("reference")
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[-1] < found[0]


def test_windows_are_followed_by_the_next_byte():
    tokens, targets = train.batches(TEXT, 3, 16)()
    assert tokens.shape == targets.shape == (3, 16) and np.array_equal(tokens[:, 1:], targets[:, :-1])
    assert bytes(tokens[0].astype(np.uint8)) in TEXT


def test_a_short_or_absent_text_is_refused(tmp_path):
    (tmp_path / "short.txt").write_bytes(b"to be")
    with pytest.raises(UsageError, match=r"short.txt has 5 bytes, and a text is 64 long"):
        train.train(str(tmp_path / "short.txt"))
    with pytest.raises(UsageError, match="cannot use"):
        train.train(str(tmp_path / "none.txt"))


@pytest.mark.slow
def test_it_learns_writes_and_draws(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    out = io.StringIO()
    found = train.train(str(tmp_path / "text.txt"), str(tmp_path / "page.html"), out, (4, 16, 32), 150)
    assert sum(found[-10:]) < 0.5 * sum(found[:10])
    assert "bytes/s" in out.getvalue() and "It reads 'to be or" in out.getvalue()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "the loss of each step" in page and "150 steps" in page
