"""Weights that show what depends on the inputs."""

import math
from pathlib import Path

import pytest
import torch

from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.visibility import CLEAR, accepted_share, live_weights
from kbevolve.evaluators.device.devices import find_device


def reference(init: str, forward: str, inputs: str = "torch.rand(8, 32)") -> Reference:
    source = f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    problem = parse_problem(source, name="tests/p", path=Path("p.py"))
    return Reference(problem, find_device("cpu"), "fp32", weight_seed=3)


def test_what_is_accepted_is_a_share_of_what_depends_on_the_input() -> None:
    assert accepted_share(reference("pass", "return x")) == 5e-5
    assert accepted_share(reference("pass", "return x + 1e4")) > 1e-3
    assert accepted_share(reference("pass", "return x * 1e-9")) == 5e-5
    assert accepted_share(reference("pass", "return x * 0")) == math.inf
    assert accepted_share(reference("pass", "return x * 1e-9 + 1")) == math.inf
    assert accepted_share(reference("pass", "return x.argmax(1)")) < CLEAR
    assert accepted_share(reference("pass", "return x.argmax(1) * 0")) == math.inf


def test_one_factor_is_for_all_random_weights_and_the_reference_keeps_its_own() -> None:
    found = reference(
        "self.layer, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)", "return (self.layer(x) - 1.6).relu()"
    )
    before = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    factors, share, state = live_weights(found, accepted_share(found)) or pytest.fail("no weights")
    assert set(factors.values()) == {math.sqrt(6)}
    assert share <= CLEAR
    assert torch.equal(state["layer.weight"], before["layer.weight"] * math.sqrt(6))
    assert bool((state["norm.weight"] != 1).any())
    assert bool(((state["norm.weight"] >= 0.5) & (state["norm.weight"] <= 1.5)).all())
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.model.state_dict().items())
    assert live_weights(found, CLEAR) is None


@pytest.mark.slow
def test_where_no_factor_suits_all_layers_each_has_its_own() -> None:
    """A softmax over many columns keeps a thousandth of a signal, and is one of few values where its input is large."""
    init = "self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(6)])"
    forward = "for layer in self.layers: x = torch.softmax(layer(x), -1)\n        return x + 1"
    found = reference(init, forward, "torch.rand(8, 512)")
    share = accepted_share(found)
    assert share > CLEAR
    factors, seen, _ = live_weights(found, share) or pytest.fail("no weights")
    assert len(set(factors.values())) == 6
    assert seen < share


def test_a_function_that_is_constant_for_all_weights_gets_none() -> None:
    assert (
        live_weights(reference("self.layer = nn.Linear(32, 32)", "return self.layer(x).clamp(0, 0)"), math.inf) is None
    )
    assert live_weights(reference("pass", "return x * 0"), math.inf) is None
