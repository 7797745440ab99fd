"""Problems whose answer hardly depends on the input with the weights of `Model`: judged with others, or refused."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.judging.judge import Judge
from tests.evaluators.judging.layer import SETTINGS

pytestmark = pytest.mark.slow

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        {init}

    def {forward}(self, x):
        return {expression}
{more}

def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return [48]
"""
#: What is constructed, and what is returned.
PROBLEMS = {
    # With default weights each layer keeps less than half of the signal.
    "fading": (
        "self.layers = nn.Sequential(*[one for _ in range(20) for one in (nn.Linear(width, width), nn.ReLU())])",
        "self.layers(x)",
    ),
    "saturated": ("self.linear = nn.Linear(width, 96)", "torch.relu(self.linear(x) - 6)"),
    # The mean of what was normalised is 0, as long as the norm's own weights are 1.
    "normalised": (
        "self.linear, self.norm = nn.Linear(width, 96), nn.LayerNorm(96)",
        "self.norm(self.linear(x)).mean(-1, keepdim=True)",
    ),
    "constant": ("self.linear = nn.Linear(width, 96)", "torch.relu(torch.tanh(self.linear(x)) - 2)"),
}
ALIVE = ("fading", "saturated", "normalised")
#: Answers that ignore the input, the weights, or both. `self.right` is the reference's forward.
FILLS = {
    "zeros": "return torch.zeros_like(self.right(x))",
    "a constant": "return torch.full_like(self.right(x), float(self.right(torch.rand_like(x)).mean()))",
    "a template": "return self.right(torch.full_like(x, 0.5))",
    "the first answer": "self.kept = getattr(self, 'kept', None); self.kept = self.right(x) if self.kept is None "
    "else self.kept; return self.kept.clone()",
    "another input's answer": "before, self.kept = getattr(self, 'kept', None), x.clone(); "
    "return self.right(torch.rand_like(x) if before is None else before)",
    "other weights' answer": "torch.manual_seed(1); other = type(self)(48); return other.right(x)",
    # Inputs of trials have new addresses, those of timed calls the same one.
    "the answer at the same address": "seen = getattr(self, 'seen', {}); self.seen = seen; "
    "seen.setdefault(x.data_ptr(), self.right(x)); return seen[x.data_ptr()].clone()",
}

Judged = Callable[..., Evaluation]


@pytest.fixture(scope="module")
def judged() -> Iterator[Judged]:
    """Judges a body of forward(x) on a problem by its name."""
    with Judge(find_device("cpu"), SETTINGS) as judge:

        def evaluate(name: str, body: str, own_init: str = "") -> Evaluation:
            init, expression = PROBLEMS[name]
            reference = SOURCE.format(name="Model", init=init, forward="forward", expression=expression, more="")
            more = f"\n    def forward(self, x):\n        {body}\n"
            kernel = SOURCE.format(
                name="ModelNew", init=own_init or init, forward="right", expression=expression, more=more
            )
            problem = parse_problem(reference, name=f"tests/{name}", path=Path("p.py"))
            return judge.evaluate(problem, Kernel.from_source(kernel))

        yield evaluate


@pytest.mark.parametrize("name", ALIVE)
def test_the_reference_is_correct_and_tagged(judged: Judged, name: str) -> None:
    found = judged(name, "return self.right(x)")
    assert found.verdict is Verdict.CORRECT, found.message
    assert "scaled-weights" in found.tags
    assert found.tags.count("scaled-weights") == 1
    assert found.accuracy.error is not None
    assert found.accuracy.error < 1e-3


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("name", ALIVE)
def test_an_answer_that_ignores_the_input_is_wrong(judged: Judged, name: str, fill: str) -> None:
    found = judged(name, FILLS[fill])
    assert found.verdict is Verdict.WRONG, f"{found.verdict}: {found.message}"


def test_another_order_of_sums_is_correct(judged: Judged) -> None:
    turned = (
        "for one in self.layers: x = torch.relu(x.flip(1).contiguous() @ one.weight.flip(1).T.contiguous() + one.bias) "
        "if isinstance(one, nn.Linear) else x\n        return x"
    )
    found = judged("fading", turned)
    assert found.verdict is Verdict.CORRECT, found.message


def test_a_kernel_without_the_names_of_the_weights_is_wrong_in_clear_words(judged: Judged) -> None:
    found = judged("saturated", "return torch.relu(self.own(x) - 6)", "self.own = nn.Linear(width, 96)")
    assert found.verdict is Verdict.WRONG
    assert "needs parameters and buffers of the reference's names" in found.message


def test_what_is_constant_for_all_weights_is_refused(judged: Judged) -> None:
    found = judged("constant", "return self.right(x)")
    assert found.verdict is Verdict.REFUSED
    assert "degenerate" in found.message
