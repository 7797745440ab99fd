"""Problem cards: every flag on a problem that deserves it, none on the honest ones."""

import textwrap
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.catalog import builtin_names, find_problem
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.evaluators.analysis import card as cards
from kbevolve.evaluators.analysis import roofline
from kbevolve.evaluators.analysis.card import card_for
from kbevolve.evaluators.analysis.roofline import CLASSES, Roofline
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache

RATES = Roofline(
    bytes_per_second=4e10, operations_per_second={"fp64": 1e11, "fp32": 2e11}, l2_bytes=1 << 14, headroom=2.0
)
DEVICE = find_device("cpu")


def problem(forward: str, *, init: str = "", inputs: str = "torch.randn(64, 96)") -> Problem:
    """A problem whose forward takes x (and y) and has a linear layer 96 -> 128."""
    indented = textwrap.indent(textwrap.dedent(forward), " " * 8)
    source = (
        "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = nn.Linear(96, 128)\n"
        f"{textwrap.indent(textwrap.dedent(init), ' ' * 8)}\n"
        f"    def forward(self, x, y=None):\n{indented}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return parse_problem(source, name="test", path=Path("test.py"))


def inspect(found: Problem, precision: str = "fp32", reference: Reference | None = None) -> ProblemCard:
    reference = reference or Reference(found, DEVICE, precision, weight_seed=1)
    disk_cache = DiskCache(Path("/dev/null"))
    return card_for(found, DEVICE, precision, reference=reference, roofline=RATES, disk_cache=disk_cache)


def test_an_honest_problem_has_no_flags_and_its_figures_are_right() -> None:
    card = inspect(problem("return torch.relu(self.linear(x))"))
    assert card.flags == {}
    assert not card.degenerate
    assert card.input_bytes == 64 * 96 * 4
    assert card.weight_bytes == (96 + 1) * 128 * 4
    assert card.output_bytes == 64 * 128 * 4
    assert card.flops == 2 * 64 * 96 * 128
    assert card.eager_ms > 0
    moved = card.input_bytes + card.weight_bytes + card.output_bytes
    assert card.memory_ms == pytest.approx(moved / 4e7)
    assert card.roofline_ms.keys() == card.floor_ms.keys() == set(CLASSES)
    assert card.roofline_ms["fp32"] == pytest.approx(max(moved / 4e7, card.flops / 2e8))
    floor = max((card.output_bytes - (1 << 14)) / 4e7, card.flops / 2e8) / 2
    assert card.floor_ms["fp32"] == pytest.approx(min(floor, card.eager_ms))


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return torch.relu(torch.tanh(x) - 2)", "zeros"),
        ("return torch.tanh(self.linear(x)) * 1e-7 + 3", "a constant"),
        ("return x.argmax(1) * 0 + 7", "a constant"),
        ("return x.mean() * 1e-7 + 2", "a constant"),
        ("return torch.arange(64 * 96).view(64, 96) / 100 + x * 1e-9", "one remembered answer"),
        # One element carries the whole signal: far beyond the elementwise tolerance, and tiny beside the output.
        ("out = torch.full_like(x, 1e9); out[0, 0] = x[0, 0] * 1e3; return out", ""),
    ],
)
def test_a_problem_is_degenerate_when_no_weights_show_what_depends_on_the_input(forward: str, words: str) -> None:
    card = inspect(problem(forward))
    assert card.degenerate
    assert words in card.flags["degenerate"]
    assert "scaled-weights" not in card.flags


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("return torch.softmax((x * 0.1).repeat(1, 300), 1)", "zeros"),
        ("return torch.sigmoid(self.linear(x)) * 1e-5 + 3", "a constant"),
        ("return self.linear(x * 1e-5)", "one remembered answer"),
        ("return torch.relu(x - 100), self.linear(x * 1e-5)", "one remembered answer"),
    ],
)
def test_what_only_an_elementwise_tolerance_accepts_is_judged(forward: str, words: str) -> None:
    card = inspect(problem(forward))
    assert not card.degenerate
    assert words in card.flags["low-signal"]


def test_a_problem_that_other_weights_bring_to_life_is_judged_with_them() -> None:
    # Seven standard deviations of what the declared weights give. With 3, five of them, a secret draw was alive once.
    card = inspect(problem("return torch.relu(self.linear(x) - 4)"))
    assert set(card.flags) == {"scaled-weights", "low-signal"}
    assert "times 2.45" in card.flags["scaled-weights"]
    assert "zeros" in card.flags["low-signal"]


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.relu(x - 100), self.linear(x)",  # one of two outputs is honest
        "return x.argmax(1)",
        "return x.mean()",
        "return torch.relu(self.linear(x)).max(1).values",
        "return x > 0",
        "return torch.fft.fft(x)",
    ],
)
def test_a_problem_whose_output_changes_in_part_is_not_degenerate(forward: str) -> None:
    assert not inspect(problem(forward)).degenerate


def test_one_unlucky_draw_of_the_weights_is_no_property_of_the_problem() -> None:
    # The two weight seeds may draw different scales, so that only one of the two models is dead.
    found = problem("return self.linear(x) * self.scale", init="self.scale = float(torch.rand(()) > 0.5)")
    dead = [seed for seed in range(20) if Reference(found, DEVICE, "fp32", weight_seed=seed).model.scale == 0.0]
    alive = Reference(found, DEVICE, "fp32", weight_seed=cards.WEIGHT_SEED + 1).model.scale == 1.0
    card = inspect(found, reference=Reference(found, DEVICE, "fp32", weight_seed=dead[0]))
    assert card.degenerate is not alive


def test_a_weak_signal_is_flagged() -> None:
    assert "a constant" in inspect(problem("return x * 1e-3 + 3")).flags["low-signal"]
    share = inspect(problem("return x * 1e-1 + torch.arange(64 * 96).view(64, 96)")).flags["low-signal"]
    assert "changes with the input" in share
    # What is weak at fp32 is nothing at half precision.
    assert inspect(problem("return x * 1e-3 + 3"), "bf16").degenerate


def test_randomness_is_flagged() -> None:
    trained = inspect(problem("return F.dropout(x, 0.2, self.training)"))
    assert set(trained.flags) == {"dropout", "dead-code"}
    assert "training mode" in trained.flags["dropout"]
    assert "dropout" not in inspect(problem("return self.drop(x)", init="self.drop = nn.Dropout(0.0)")).flags
    assert not inspect(problem("return self.linear(x) + 1e-30 * torch.rand(128)")).flags
    always = inspect(problem("return x + torch.rand_like(x)"))
    assert {"random", "nondeterministic"} <= set(always.flags)
    assert "evaluation mode" in always.flags["random"]


def test_work_in_place_is_flagged_and_each_call_gets_fresh_inputs() -> None:
    card = inspect(problem("return x.mul_(2).add_(1)"))
    assert card.flags["in-place"] == "forward changes input 0"
    assert "nondeterministic" not in card.flags


def test_dead_code_is_flagged() -> None:
    spare = "self.spare = nn.Linear(96, 8)"
    card = inspect(problem("return torch.relu(self.linear(x))", init=spare))
    assert card.flags["dead-code"] == "the answer does not depend on spare.weight, spare.bias"
    called = inspect(problem("self.spare(x); return torch.relu(self.linear(x))", init=spare))
    assert "the result of one product is never used" in called.flags["dead-code"]
    given = inspect(problem("return torch.relu(self.linear(x))", inputs="torch.randn(64, 96), torch.randn(8)"))
    assert given.flags["dead-code"] == "the answer does not depend on input 1"
    # No gradient reaches x through the sign, but the answer does depend on it.
    assert "dead-code" not in inspect(problem("return self.linear(torch.sign(x))")).flags


def test_the_search_for_dead_code_restores_the_weights() -> None:
    found = problem("return torch.relu(self.linear(x))", init="self.spare = nn.Linear(96, 8)")
    reference = Reference(found, DEVICE, "fp32", weight_seed=1)
    before = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    inspect(found, reference=reference)
    after = reference.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not reference.model.training


def test_operations_that_algebra_saves_do_not_raise_the_floor() -> None:
    summed = inspect(problem("return self.linear(x).sum(1)"))
    assert "summed up" in summed.flags["reducible"]
    assert summed.flops == 2 * 64 * 96 * 128
    assert set(summed.floor_ms.values()) == {0.0}
    diagonal = inspect(problem("return x @ y", inputs="torch.diag(torch.randn(96)), torch.randn(96, 96)"))
    assert "99 % of input 0 are zeros" in diagonal.flags["reducible"]
    assert diagonal.memory_ms < (2.1 * 96 * 96 * 4 + diagonal.weight_bytes) / 4e7


def test_values_that_are_not_finite_are_flagged_and_left_out() -> None:
    card = inspect(problem("return torch.log(x)"))
    assert "not-finite" in card.flags
    assert not card.degenerate
    assert inspect(problem("return torch.log(-x.abs() - 1)")).flags.keys() >= {"not-finite"}


def test_a_reference_that_fails_is_an_infrastructure_failure() -> None:
    with pytest.raises(EvaluatorError, match="reference's forward"):
        inspect(problem("return x @ x"))
    with pytest.raises(EvaluatorError, match="shape of the answer changes"):
        inspect(problem("return x", inputs="torch.randn(8 + int(torch.randint(9, ())), 96)"))


def test_a_card_is_made_once_for_a_source_a_device_and_a_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_cache, found = DiskCache(tmp_path), problem("return torch.relu(self.linear(x))")
    monkeypatch.setattr(roofline, "measure", lambda device: RATES)
    card = card_for(found, DEVICE, "fp32", disk_cache=disk_cache)
    with monkeypatch.context() as patch:
        patch.setattr(cards, "Reference", lambda *arguments, **keywords: pytest.fail("the reference was run again"))
        assert card_for(found, DEVICE, "fp32", disk_cache=disk_cache) == card
    other = card_for(found, DEVICE, "bf16", disk_cache=disk_cache)
    assert (other.precision, other.input_bytes) == ("bf16", card.input_bytes // 2)
    assert card_for(found, DEVICE, "fp32", disk_cache=disk_cache, fresh=True).flags == card.flags
    disk_cache.put("card", f"{found.id}|{DEVICE.fingerprint}|fp32|{cards.FORMAT}", {"unknown": 1})
    assert card_for(found, DEVICE, "fp32", disk_cache=disk_cache).flops == card.flops


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "L2/conv_relu_pool")) for name in builtin_names()],
)
def test_the_built_in_problems_are_honest(name: str) -> None:
    found = find_problem(name)
    assert inspect(found, reference=Reference(found, DEVICE, "fp32", weight_seed=3)).flags == {}
