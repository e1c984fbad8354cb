"""The workloads of FusionStitching 2020 and AStitch: gradients against finite differences, compiled programs against
NumPy, and what makes each program the network that its name says."""

import functools
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minisitch as ms
from minisitch.lower import lower_program
from minisitch.runtime.assemble import assemble
from minisitch.strategies.ask import fuse
from minisitch.trace import flatten

MODELS = Path(__file__).resolve().parent.parent / "benchmarks" / "models"
if str(MODELS) not in sys.path:
    sys.path.insert(0, str(MODELS))  # the models import their layers by name, as the command line runs them

import asr  # noqa: E402
import bert_infer  # noqa: E402
import crnn  # noqa: E402
import dien  # noqa: E402
import dien_infer  # noqa: E402
import layers  # noqa: E402
import named  # noqa: E402
import transformer  # noqa: E402
import transformer_infer  # noqa: E402

NAMES = ("bert_train", "bert_infer", "dien_train", "dien_infer", "transformer_train", "transformer_infer", "asr", "crnn")
TRAINED = tuple(name for name in NAMES if name.endswith("train"))
FULL_NODES = 3000


def make(name, preset="small"):
    return importlib.import_module(name).make(preset)


def in_float64(value):
    """The same arguments with float64 for float32."""
    if isinstance(value, dict):
        return {key: in_float64(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(in_float64, value))
    return value.astype(np.float64) if getattr(value, "dtype", None) == np.float32 else value


class Untouched(np.ndarray):
    """Zeros that take no memory until something reads or writes them."""

    def astype(self, dtype, **options):
        return np.zeros(self.shape, dtype)


class Unread(np.random.Generator):
    """Makes weights that are only looked at for their shapes. A preset of the papers' size has 100 million of them."""

    def __init__(self, seed):
        super().__init__(np.random.PCG64(seed))

    def normal(self, mean, deviation, shape):
        return np.zeros(shape).view(Untouched)


def make_full(name, monkeypatch):
    """The full preset, with weights that are all zero."""
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "default_rng", Unread)
        patch.setattr(np, "zeros_like", lambda x: np.zeros(x.shape, x.dtype))  # NumPy's own writes them
        return make(name, "full")


# ---------------------------------------------------------------- every program
@functools.cache
def exact(name):
    """The small program's arguments in float64, and what NumPy makes of them."""
    fn, args = make(name)
    args = in_float64(args)
    return args, flatten(fn(*args))


@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_what_numpy_computes(name):
    """In float64, where rounding cannot hide a mistake in a small gradient. Both strategies lower one trace."""
    args, (wanted, tree) = exact(name)
    compiled = ms.jit(make(name)[0], strategy="astitch", target="python").compile(*args)
    unfused = assemble(lower_program(compiled.stages.program, "xla", "python", compiled.stages.device), "python")
    for each in (compiled, unfused):
        found, nest = flatten(each(flatten(args)[0]))
        assert nest == tree
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11 * max(1.0, np.max(np.abs(want))))


@pytest.mark.parametrize("name", ["bert_infer", "dien_infer", "transformer_infer"])
def test_the_cuda_text_does_too(name):
    fn, args = make(name)
    for got, want in zip(flatten(ms.jit(fn, strategy="astitch", target="step")(*args))[0], flatten(fn(*args))[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_throughout(name):
    fn, args = make(name)
    assert not [n for n in ms.trace(fn, args).graph.nodes if n.type.dtype == "float64"]
    for got, want in zip(flatten(fn(*args))[0], exact(name)[1][0], strict=True):
        assert np.asarray(got).dtype in (np.float32, np.int64) and np.isfinite(got).all()
        if want.size > 1 and np.max(np.abs(want)) > 1e-3:  # gradients that are zero but for rounding are left out
            np.testing.assert_allclose(got, want, atol=3e-3 * np.max(np.abs(want)))


@pytest.mark.parametrize("name", NAMES)
def test_full_presets_are_large_but_not_too_large_and_are_stitched(name, monkeypatch):
    """The papers' batch; at most so many nodes; AStitch needs less than half the kernels of XLA, as in its paper."""
    module = importlib.import_module(name)
    assert list(module.PRESETS) == ["small", "full"]
    fn, args = make_full(name, monkeypatch)
    graph = ms.lower(fn, *args, target="cuda", device="v100", stop_after="simplify")
    counts = [fuse(graph, strategy, ms.get_device("v100")) for strategy in ("none", "xla", "astitch")]
    assert len(counts[0].graph) <= FULL_NODES
    none, xla, astitch = (len(each.kernels) for each in counts)
    assert astitch < 0.45 * xla < 0.45 * none
    assert len({len(each.library_calls) for each in counts}) == 1
    operands = {counts[0].graph[n.args[0]].type.shape for n in counts[0].graph.nodes if n.kind == "reduce"}
    wanted = {"dien": (256, 2930, 32), "transformer_train": (64, 30000)}  # <750000,32> and <64,30000>
    assert {shape for start, shape in wanted.items() if name.startswith(start)} <= operands


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_seeded(name):
    same, other = (flatten(importlib.import_module(name).make("small", seed)[1])[0] for seed in (0, 1))
    for a, b in zip(flatten(make(name)[1])[0], same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(same, other, strict=True))


def test_the_papers_figures_have_the_papers_averages():
    """38.0% of XLA's kernels (FusionStitching 2020), 65.7% fewer kernels and 43.2% fewer copies (AStitch)."""
    def ratios(paper, what):
        tables = [importlib.import_module(name).PAPER.get(paper, {}).get(what) for name in NAMES]
        return [table[paper] / table["xla"] for table in tables if table]
    assert [len(ratios("fs20", "kernels")), len(ratios("astitch", "kernels"))] == [7, 5]
    assert np.mean(ratios("fs20", "kernels")) == pytest.approx(0.38, abs=0.003)
    assert np.mean(ratios("astitch", "kernels")) == pytest.approx(1 - 0.657, abs=0.0005)
    assert np.mean(ratios("astitch", "copies")) == pytest.approx(1 - 0.432, abs=0.0005)


# ---------------------------------------------------------------- gradients
def wrong_gradients(name, spoil=lambda gradients: gradients, seed=0, step=1e-6):
    """The weights whose gradient is not the slope of the loss, along a random direction of each."""
    module = importlib.import_module(name)
    batch, weights, _, _, *rest = in_float64(module.make("small", seed)[1])
    rest = [each for each in rest if not isinstance(each, np.generic)]  # Adam's count of steps
    gradients = spoil(module.loss_and_gradients(batch, weights, *rest)[1])
    assert gradients.keys() == weights.keys()
    random, found = np.random.default_rng(seed), []
    for key, weight in weights.items():
        direction = random.normal(size=weight.shape)
        losses = [module.loss_and_gradients(batch, {**weights, key: weight + by * direction}, *rest)[0] for by in (step, -step)]
        slope, given = (losses[0] - losses[1]) / (2 * step), np.sum(gradients[key] * direction)
        if abs(slope - given) > 1e-5 * abs(slope) + 2e-9:
            found.append(key)
    return found


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_slopes(name):
    assert wrong_gradients(name) == []


@pytest.mark.parametrize("name", TRAINED)
def test_a_wrong_gradient_is_found(name):
    """Each but those that are zero (attention sees no bias of its keys) and those too small for differences."""
    found = wrong_gradients(name, lambda gradients: {key: 1.01 * g for key, g in gradients.items()})
    assert len(found) >= 0.75 * len(make(name)[1][1])


@pytest.mark.parametrize("name", TRAINED)
def test_steps_reduce_the_loss(name):
    fn, (batch, weights, means, squares, *rest) = make(name)
    losses = []
    for _ in range(20):
        weights, means, squares, loss = fn(batch, weights, means, squares, *rest)
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.01


# ---------------------------------------------------------------- what the networks are
def changed(values, start, by=7):
    """A copy whose entries from ``start[row]`` on are other ones."""
    past = np.arange(values.shape[1]) >= np.asarray(start)[:, None]
    past = past.reshape(*past.shape, *(1,) * (values.ndim - 2))
    return np.where(past, values + by if values.dtype.kind == "f" else (values + by) % 5, values).astype(values.dtype)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_what_is_past_the_end_changes_nothing(seed):
    fn, (batch, weights) = dien_infer.make("small", seed)
    other = {name: changed(x, batch["long_lengths" if name.startswith("long") else "lengths"]) if x.ndim == 2 else x
             for name, x in batch.items()}
    np.testing.assert_array_equal(fn(batch, weights), fn(other, weights))

    fn, (words, types, lengths, weights, heads) = bert_infer.make("small", seed)
    np.testing.assert_array_equal(fn(words, types, lengths, weights, heads),
                                  fn(changed(words, lengths), types, lengths, weights, heads))

    fn, (features, lengths, weights, count) = asr.make("small", seed)
    whole = -(-lengths // 4) * 4  # what the convolutions see of an utterance: blocks of four frames
    for a, b in zip(fn(features, lengths, weights, count), fn(changed(features, whole), lengths, weights, count), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_an_attentional_gru_lies_between_a_gru_and_its_candidate(seed):
    random = np.random.default_rng(seed)
    x, state, score = random.normal(size=(3, 4)), random.normal(size=(3, 5)), random.random((3, 1))
    kernels = random.normal(size=(9, 10)), random.normal(size=10), random.normal(size=(9, 5)), random.normal(size=5)
    np.testing.assert_allclose(dien.augru_cell(x, state, 0.0 * score, *kernels)[0], layers.gru_cell(x, state, *kernels)[0])
    candidate = layers.gru_cell(x, state, *kernels)[1][-1]
    np.testing.assert_allclose(dien.augru_cell(x, state, 0.0 * score + 1.0, *kernels)[0], candidate)


def test_slices_and_a_product_are_a_convolution():
    random = np.random.default_rng(0)
    x, kernel, bias = random.normal(size=(2, 5, 6, 3)), random.normal(size=(9 * 3, 4)), random.normal(size=4)
    found = crnn.convolve(x, kernel, bias)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for row, column in np.ndindex(5, 6):
        window = padded[:, row:row + 3, column:column + 3].reshape(2, -1)
        np.testing.assert_allclose(found[:, row, column], window @ kernel + bias)
    largest = crnn.pool(x[:, :4], 2, 3)
    assert largest.shape == (2, 2, 2, 3) and largest[1, 1, 0, 2] == x[1, 2:4, 0:3, 2].max()


def test_both_directions_are_read():
    fn, (pictures, weights) = crnn.make("small")
    chances, letters = fn(pictures, weights)
    np.testing.assert_allclose(np.exp(chances).sum(-1), 1.0, rtol=1e-5)
    assert chances.shape[:2] == letters.shape == (2, 2)
    for end in (0, -1):  # the classes of every column depend on the picture's first and last columns
        other = pictures.copy()
        other[:, :, end] += 1.0
        assert (np.abs(fn(other, weights)[0] - chances).max(-1) > 0).all()


def chances_after(words, memory, weights, heads):
    """Logarithms of the next word's probabilities, from the training program's decoder over all words again."""
    x = transformer.embed(np.array([[0, *words]]), weights["words"])
    causal = np.triu(np.ones((x.shape[1], x.shape[1])), 1) * -1e9
    x, _ = transformer.layer(x, memory, (causal, 0.0), weights, "decoder/0", heads)
    logits = named.normed(x, weights, "decoder")[0][0, -1] @ weights["words"].T
    if transformer_infer.END in words:
        return np.where(np.arange(len(logits)) == transformer_infer.END, 0.0, -np.inf)
    return np.log(np.exp(logits) / np.exp(logits).sum())


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_remembered_keys_give_what_reading_all_words_again_gives(seed):
    """A beam of one takes the likeliest word each time."""
    fn, (source, weights, heads, *_) = in_float64(transformer_infer.make("small", seed))
    sentences, scores = fn(source, weights, heads, 1, 1, 1, 4)
    memory, _ = transformer.encode(source, weights, heads, 1)
    words, total = [], 0.0
    for _ in range(4):
        chances = chances_after(words, memory, weights, heads)
        words.append(int(np.argmax(chances)))
        total += chances[words[-1]]
    assert sentences.tolist() == [words]
    np.testing.assert_allclose(scores, [total / (9.0 / 6.0) ** 0.6], rtol=1e-6)


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_sentences_of_two_words(seed):
    fn, (source, weights, heads, *_) = in_float64(transformer_infer.make("small", seed))
    weights["words"], source = 2.0 * weights["words"][:6], source % 6
    sentences, scores = fn(source, weights, heads, 1, 1, 6, 2)
    memory, _ = transformer.encode(source, weights, heads, 1)
    first = chances_after([], memory, weights, heads)
    totals = {(a, b): first[a] + second for a in range(6)
              for b, second in enumerate(chances_after([a], memory, weights, heads))}
    best = sorted(totals, key=totals.__getitem__, reverse=True)[:6]
    assert list(map(tuple, sentences.tolist())) == best
    np.testing.assert_allclose(scores * (7.0 / 6.0) ** 0.6, [totals[each] for each in best], rtol=1e-6)
