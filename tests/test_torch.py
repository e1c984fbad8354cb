"""``torch.compile(f, backend="minisitch")`` of small programs: PyTorch's own results, or a fall back that is named."""

import runpy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'minisitch[torch]'")

from torch_programs import FORWARD, PROGRAMS  # noqa: E402

from minisitch import torch_backend  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch_backend.fallbacks.clear()


def leaves(results):
    return [results] if isinstance(results, torch.Tensor) else [*results]


def run(function, make, gradients):
    """The results and the arguments as they are then, and the gradients of a weighted sum of the results."""
    torch.manual_seed(0)
    arguments = make()
    for x in arguments:
        x.requires_grad_(gradients and x.is_floating_point())
    results = leaves(function(*arguments))
    if gradients:
        torch.manual_seed(1)
        sum((each.double() * torch.randn(each.shape)).sum() for each in results if each.requires_grad).backward()
    return [*results, *(x.detach() for x in arguments)], [x.grad for x in arguments]


def same(got, want, where):
    assert (got.shape, got.dtype) == (want.shape, want.dtype), where
    dense = want.numel() and want.permute(torch_backend.layout(want)).is_contiguous()
    assert not dense or got.stride() == want.stride(), where
    loose = {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6, torch.float64: 1e-12}.get(got.dtype, 0)
    finite = want[want.isfinite()] if want.is_floating_point() else want
    scale = max(1.0, finite.abs().max().item()) if loose and finite.numel() else 1.0
    torch.testing.assert_close(got, want, rtol=loose, atol=loose * scale, equal_nan=True, msg=lambda text: f"{where}: {text}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_small_program_is_pytorchs(name):
    function, make, falls_back = PROGRAMS[name]
    want, want_gradients = run(function, make, name not in FORWARD)
    got, gradients = run(torch.compile(function, backend="minisitch"), make, name not in FORWARD)
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        same(a, b, f"result {i}")
    for i, (a, b) in enumerate(zip(gradients, want_gradients, strict=True)):
        assert (a is None) == (b is None)
        if a is not None:
            same(a, b, f"gradient {i}")
    named = {said.removeprefix("aten.").partition(" at ")[0] for said in torch_backend.fallbacks}
    assert named == falls_back, "\n".join(torch_backend.fallbacks)


def test_the_page_has_the_table_as_it_is():
    sys.path.insert(0, str(ROOT / "tools"))
    import operator_table

    assert operator_table.PAGE.read_text(encoding="utf-8") == operator_table.page(), "run python tools/operator_table.py"


def test_the_tutorial_ends_at_the_real_door(capsys):
    runpy.run_path(str(ROOT / "tutorials" / "17_front_door.py"), run_name="__main__")
    assert "forward: " in capsys.readouterr().out
