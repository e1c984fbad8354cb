"""Whole models through ``torch.compile(model, backend="minisitch")``: outputs, gradients, training, shapes, what is said."""

import importlib.metadata
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'minisitch[torch]'")

from torch import nn  # noqa: E402

from minisitch import LoopWarning, compare, explain, torch_backend  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch_backend.fallbacks.clear()
    torch.manual_seed(0)


def compiled(model, parts=None):
    def backend(gm, inputs):
        return torch_backend.minisitch(gm, inputs, parts=parts)
    return torch.compile(model, backend=backend)


def named():
    return {said.removeprefix("aten.").partition(" at ")[0] for said in torch_backend.fallbacks}


def step(model, run, x, weights):
    """The output, and the gradients of a weighted sum of it: zeros where PyTorch has None."""
    model.zero_grad()
    torch.manual_seed(1)
    y = run(x)
    y = y if isinstance(y, torch.Tensor) else y.last_hidden_state
    (y * weights).sum().backward()
    return y.detach(), [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


def check(model, x, shape, *falls_back):
    """Output and gradients against eager. The scale is the model's largest gradient."""
    weights = torch.randn(shape)
    want, wanted = step(model, model, x, weights)
    got, gradients = step(model, compiled(model), x, weights)
    scale = max(g.abs().max().item() for g in wanted)
    assert (got - want).abs().max() <= 4e-6 * max(1.0, want.abs().max().item())
    assert max((a - b).abs().max().item() for a, b in zip(gradients, wanted, strict=True)) <= 2e-6 * scale
    assert named() == {*falls_back}, "\n".join(torch_backend.fallbacks)


# ---------------------------------------------------------------- models of transformers
IDS = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
       "max_position_embeddings": 32}
DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODELS = {
    "Bert": ({**IDS, **DRY},),
    "GPT2": ({"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
              "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0},),
    "Llama": ({**IDS, "num_key_value_heads": 2},),
    "ViT": ({**DRY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 16,
             "patch_size": 4}, "convolution.default", "convolution_backward.default"),
    "T5": ({"vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0},),
    "Qwen3": ({**IDS, "num_key_value_heads": 2, "head_dim": 16},),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_transformers_is_eagers(name):
    transformers = pytest.importorskip("transformers")
    settings, *falls_back = MODELS[name]
    kind = f"{name}EncoderModel" if name == "T5" else f"{name}Model"
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**settings))
    image = name == "ViT"
    x = torch.randn(2, 3, 16, 16) if image else torch.randint(0, 100, (2, 12))
    check(model, x, (2, 17 if image else 12, 64), *falls_back)


# ---------------------------------------------------------------- models of our own
class Residual(nn.Module):
    """A block of ResNet."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


class Bag(nn.Module):
    """Embeddings, dropout and batchnorm, as a classifier of short texts has them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16, padding_idx=0)
        self.norm, self.drop, self.out = nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 3)

    def forward(self, ids):
        return self.out(self.drop(self.norm(torch.tanh(self.words(ids).mean(1)))))


CONVOLUTIONS = ("convolution.default", "convolution_backward.default")


@pytest.mark.parametrize("training", [True, False])
def test_a_resnet_block_is_eagers_and_so_are_its_running_means(training):
    model = Residual().train(training)
    before = [b.clone() for b in model.buffers()]
    x = torch.randn(2, 4, 6, 6)
    check(model, x, x.shape, *CONVOLUTIONS)  # two steps: eager, then ours
    ours = [b.clone() for b in model.buffers()]
    for b, old in zip(model.buffers(), before, strict=True):
        b.copy_(old)
    for _ in range(2):
        model(x)
    for got, want in zip(ours, model.buffers(), strict=True):
        torch.testing.assert_close(got, want)


def losses(compile, steps=20):
    torch.manual_seed(0)
    model = Bag()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    run, found = compile(model), []
    ids, target = torch.randint(0, 50, (32, 7)), torch.randint(0, 3, (32,))
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(run(ids), target)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, [b.clone() for b in model.buffers()]


def test_twenty_steps_of_adamw_lose_what_eager_loses():
    want, means = losses(lambda model: model)
    got, own = losses(compiled)
    np.testing.assert_allclose(got, want, rtol=2e-4)
    for a, b in zip(own, means, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert named() == {"native_dropout.default"} and want[-1] < want[0] / 2


# ---------------------------------------------------------------- shapes
def test_each_shape_is_a_program_up_to_a_limit_and_a_warning_names_the_argument():
    def f(x, *, factor):
        return torch.softmax(x, 1).sum(0) * factor
    run = compiled(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", LoopWarning)
        for rows in range(2, torch_backend.MOST_SHAPES + 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(run(x, factor=2.0), f(x, factor=2.0))
    said = [str(each.message) for each in seen if each.category is LoopWarning]
    assert len(said) == 1 and said[0].startswith("x came in 8 shapes")


def test_changing_shapes_have_gradients():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU())
    run = compiled(model)
    for rows in (2, 3, 5):
        x, weights = torch.randn(rows, 4), torch.randn(rows, 8)
        for got, want in zip(step(model, run, x, weights), step(model, model, x, weights), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- memory
def test_tensors_are_shared_in_memory_order_and_not_copied():
    parts = []
    x, weight = torch.randn(5, 6).t(), torch.randn(6, 5)
    run = compiled(lambda x, weight: ((x * weight).t(), weight.t()), parts)
    run(x, weight)
    part, given = parts[0], []

    class Watched:
        def outputs(self, leaves):
            given.extend(leaves)
            self.made = part.executable.outputs(leaves)
            return self.made
    part.executable, part.run = part.run, Watched()
    product, view = run(x, weight)
    assert {a.ctypes.data for a in given} == {x.data_ptr(), weight.data_ptr()} and all(a.flags.c_contiguous for a in given)
    assert product.data_ptr() == part.run.made[0].ctypes.data
    assert view.data_ptr() == weight.data_ptr() and len(part.graph.outputs) == 1


def test_a_negative_view_and_inference_mode_are_taken():
    x = torch.complex(torch.randn(4), torch.randn(4)).conj().imag
    assert x.is_neg()
    run = compiled(lambda x: x * 2 + 1)
    with torch.inference_mode():
        torch.testing.assert_close(run(x), x * 2 + 1)


def test_an_index_outside_raises_as_pytorch_does():
    run = compiled(lambda table, ids: nn.functional.embedding(ids, table) * 2)
    for bad in (4, -1):
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
            run(torch.randn(4, 3), torch.tensor([0, bad]))


# ---------------------------------------------------------------- what is said
def test_nodes_carry_the_models_line_and_its_module():
    parts = []
    model = Bag()
    step(model, compiled(model, parts), torch.randint(0, 50, (4, 7)), torch.randn(4, 3))
    nodes = [node for part in parts for node in part.graph.nodes]
    line = Bag.forward.__code__.co_firstlineno + 1
    assert {node.where for node in nodes if node.op == "tanh"} == {f"test_torch_models.py:{line}"}
    assert {node.via for node in nodes if node.op == "matmul"} == {"Linear", "gradient of Linear"}


def test_explain_says_what_pytorch_runs_and_its_graphs_can_be_compared():
    said = torch_backend.explain(lambda x: torch.topk(x * 2, 2).values + 1, torch.randn(5, 6))
    line = test_explain_says_what_pytorch_runs_and_its_graphs_can_be_compared.__code__.co_firstlineno + 1
    assert f"1 x aten.topk.default at test_torch_models.py:{line} in <lambda>: no line in the table" in str(said)
    assert [part.name for part in said.parts] == ["forward", "forward"]  # before topk, and behind it
    model = nn.LayerNorm(8)
    forward, backward = torch_backend.explain(model, torch.randn(4, 8)).parts
    graph = backward.graph
    assert (forward.name, backward.name) == ("forward", "backward") and model.weight.grad is None
    assert "gradient of LayerNorm" in str(explain(graph, strategy="xla"))
    assert {row.strategy for row in compare(graph, strategies=("none", "astitch"), seconds=0.01).rows} == {"none", "astitch"}


@pytest.mark.parametrize("given", [{"options": {"strategi": "xla"}}, {"mode": "max-autotune"}])
def test_what_the_backend_does_not_take_is_refused(given):
    with pytest.raises(Exception, match="strategy, device, exact and passes"):
        torch.compile(lambda x: x + 1, backend="minisitch", **given)(torch.ones(2))


def test_options_are_those_of_jit():
    parts = []
    backend = {"options": {"strategy": "none"}, "parts": parts}
    torch.compile(nn.LayerNorm(8), backend=lambda gm, inputs: torch_backend.minisitch(gm, inputs, **backend))(torch.randn(4, 8))
    assert parts[0].run.stages.plan.strategy == "none"


def test_the_door_is_a_wing_and_pytorch_finds_it_by_name():
    loaded = "import sys, minisitch; sys.exit(bool({'torch', 'minisitch.torch_backend'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
    assert "minisitch" in {each.name for each in importlib.metadata.entry_points(group="torch_dynamo_backends")}
