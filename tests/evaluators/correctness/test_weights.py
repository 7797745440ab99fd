"""Weights that are the same under both seeds are changed, and keep what kernels may rely on."""

import hypothesis
import hypothesis.strategies as st
import torch

from kbevolve.evaluators.correctness.weights import accepted_changes, amplified, varied


def changed(tensor: torch.Tensor, *, seed: int = 1) -> torch.Tensor:
    return varied({"it": tensor}, {"it": tensor.clone()}, seed=seed)["it"]


def test_what_the_seed_decides_stays() -> None:
    first, second = {"weight": torch.randn(8)}, {"weight": torch.randn(8)}
    assert varied(first, second, seed=1)["weight"] is second["weight"]


def test_an_identity_keeps_its_zeros_and_a_variance_its_sign() -> None:
    eye = changed(torch.eye(4))
    assert not torch.equal(eye, torch.eye(4))
    assert torch.equal(eye != 0, torch.eye(4) != 0)
    assert bool((changed(torch.ones(64)) > 0).all())


def test_a_gate_of_zero_opens() -> None:
    assert bool(changed(torch.zeros(1)).abs() > 0)


def test_infinities_of_a_mask_stay() -> None:
    mask = torch.full((4, 4), -torch.inf).triu(1)
    assert torch.equal(torch.nan_to_num(changed(mask), nan=0.0), torch.nan_to_num(mask, nan=0.0))


def test_integers_and_empty_tensors_stay() -> None:
    for tensor in (torch.arange(4), torch.zeros(0), torch.tensor([True])):
        assert torch.equal(changed(tensor), tensor)


def test_a_seed_gives_the_same_and_half_precision_stays() -> None:
    half = torch.ones(16, dtype=torch.float16)
    assert changed(half).dtype is torch.float16
    assert torch.equal(changed(half, seed=5), changed(half, seed=5))
    assert not torch.equal(changed(half, seed=5), changed(half, seed=6))


@hypothesis.given(st.integers(2, 12), st.data())
def test_a_change_that_is_not_borne_spoils_no_other(count: int, data: st.DataObject) -> None:
    plain = {str(number): torch.zeros(1) for number in range(count)}
    unchanged = data.draw(st.sampled_from(sorted(plain)))
    state = {name: tensor if name == unchanged else torch.ones(1) for name, tensor in plain.items()}
    bad = data.draw(st.sampled_from(sorted(set(plain) - {unchanged})))
    found = accepted_changes(plain, state, lambda some: not bool(some[bad]))
    assert found == {**state, bad: plain[bad]}


def test_nothing_is_borne_where_a_single_change_is_not() -> None:
    assert accepted_changes({"a": torch.zeros(1)}, {"a": torch.ones(1)}, lambda some: False) == {"a": torch.zeros(1)}


def test_only_random_numbers_with_a_factor_are_amplified() -> None:
    first = {"weight": torch.randn(8), "other": torch.randn(8), "scale": torch.ones(8), "count": torch.tensor(3)}
    second = {"weight": torch.randn(8), "other": torch.randn(8), "scale": torch.ones(8), "count": torch.tensor(4)}
    found = amplified(first, second, {"weight": 4.0, "scale": 4.0, "count": 4.0})
    assert torch.equal(found.pop("weight"), 4 * second["weight"])
    assert all(tensor is second[name] for name, tensor in found.items())
