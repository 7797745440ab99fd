"""Counting products, and separating those that algebra can save."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.evaluators.analysis.operations import Operations, count_operations, zero_tile_share

torch.manual_seed(0)
A, B, C = torch.randn(64, 96), torch.randn(96, 128), torch.randn(128, 32)
AB = 2 * 64 * 96 * 128
IMAGES, KERNELS = torch.randn(2, 4, 16, 16), torch.randn(8, 4, 3, 3)
CONVOLUTION = 2 * 2 * 8 * 14 * 14 * 4 * 9


def test_a_plain_product_is_certain() -> None:
    assert count_operations(lambda: A @ B) == Operations(total=AB, certain=AB, required=AB)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.relu(A @ B).sum(1),  # each element counts before it is summed up
        lambda: torch.softmax(A @ B, 1).mean(),
        lambda: ((A @ B) * 2 + 1).tanh(),
        lambda: F.layer_norm(A @ B, (128,)),
        lambda: (lambda x: x - x.mean())(A @ B),
        lambda: torch.relu(A @ B)[:, :100],
        lambda: torch.relu((A @ B).view(64, 2, 64).transpose(0, 1)),
        lambda: (lambda x: x.relu_())(A @ B),
    ],
)
def test_a_product_whose_every_element_is_needed_is_certain(call: Callable[[], object]) -> None:
    found = count_operations(call)
    assert found == Operations(total=AB, certain=AB, required=AB)


@pytest.mark.parametrize(
    "call",
    [
        lambda: (A @ B).sum(1),
        lambda: ((A @ B) / 3 + 1).mean(1, keepdim=True).exp(),
        lambda: F.avg_pool1d((A @ B)[None], 8),
        lambda: (torch.relu(A[:, :1]) + A @ B).sum(0),
        lambda: torch.ones(64, 128) - (A @ B).mean(),
    ],
)
def test_a_product_that_is_summed_up_is_not_certain(call: Callable[[], object]) -> None:
    found = count_operations(call)
    assert (found.total, found.certain, found.required) == (AB, 0, 0)
    assert "summed up" in found.redundant[0]


def test_a_chain_of_products_is_not_certain() -> None:
    assert count_operations(lambda: A @ B @ C).certain == 0
    assert not count_operations(lambda: A @ B @ C).redundant
    both = count_operations(lambda: torch.relu(A @ B) @ C)
    assert both.certain == both.total
    assert count_operations(lambda: A @ B @ C).required == both.total


def test_unused_products_are_reported() -> None:
    def dead() -> torch.Tensor:
        A @ B
        return A

    assert count_operations(dead).unused == 1
    assert (count_operations(dead).certain, count_operations(dead).required) == (0, 0)
    part = count_operations(lambda: torch.relu(A @ B)[:, :8])
    assert (part.certain, part.required) == (0, AB * 8 // 128)
    assert part.redundant == ("6 % of the result of a matrix product is used",)


def test_a_product_used_in_parts_is_certain() -> None:
    def split() -> torch.Tensor:
        one, two, three, four = (A @ B).split(32, dim=1)
        return torch.cat([torch.relu(one), torch.tanh(two), torch.exp(three), torch.sigmoid(four)], 1)

    assert count_operations(split).certain == AB


def test_products_with_blocks_of_zeros_and_squares_are_not_certain() -> None:
    assert zero_tile_share(torch.eye(64)) == pytest.approx(0.75)
    assert zero_tile_share(torch.ones(128, 128).tril()) == pytest.approx(28 / 64)
    assert zero_tile_share(torch.relu(torch.randn(64, 64))) == 0.0
    found = count_operations(lambda: torch.diag(torch.randn(96)) @ B)
    assert found.certain == 0
    assert "blocks of zeros" in found.redundant[0]
    assert found.required == pytest.approx(found.total / 6)
    assert count_operations(lambda: A @ A.T).certain == 0


def test_a_convolution_is_certain_by_its_fewest_multiplications() -> None:
    found = count_operations(lambda: torch.relu(F.conv2d(IMAGES, KERNELS)))
    assert found == Operations(total=CONVOLUTION, certain=CONVOLUTION // 9, required=CONVOLUTION)
    normalised = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1)).eval()
    assert count_operations(lambda: normalised(IMAGES)).certain == 0


def test_attention_and_recurrent_layers_are_counted() -> None:
    query = torch.randn(2, 4, 64, 16)
    work = 4 * 2 * 4 * 64 * 64 * 16
    key, value = query.clone(), query.clone()
    assert count_operations(lambda: F.scaled_dot_product_attention(query, key, value)).total == work
    assert count_operations(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True)).certain == 0
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    tokens = 2 * 8
    assert count_operations(lambda: layer(torch.randn(2, 8, 32))).total == (
        2 * tokens * 32 * (3 * 32 + 32 + 2 * 64) + 2 * 4 * 4 * 8 * 8 * 8
    )
    assert torch.backends.mha.get_fastpath_enabled() == fast_path
    lstm = nn.LSTM(16, 32, batch_first=True).eval()
    assert count_operations(lambda: lstm(torch.randn(2, 5, 16))[0]).total == 2 * 10 * 4 * 32 * (16 + 32)
