"""How much torch's names compute."""

import pytest
import torch

from kbevolve.evaluators.lint.operations import gives_tensor, weight_of


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("torch.mm", "heavy"),
        ("torch.Tensor.addmm_", "heavy"),
        ("torch.nn.functional.scaled_dot_product_attention", "heavy"),
        ("torch.nn.functional.conv_transpose2d", "heavy"),
        ("torch.ops.aten.bmm.default", "heavy"),
        ("torch.ops.aten._scaled_dot_product_flash_attention", "heavy"),
        ("torch._C._nn.linear", "heavy"),
        ("torch.linalg.svd", "heavy"),
        ("torch.fft.rfft2", "heavy"),
        ("torch.nn.LSTM", "heavy"),
        ("torch.nn.modules.conv.Conv2d.forward", "heavy"),
        ("flash_attn.flash_attn_func", "heavy"),
        ("numpy.matmul", "heavy"),
        ("torch.relu", "light"),
        ("torch.Tensor.sum", "light"),
        ("torch.Tensor.__add__", "light"),
        ("torch.nn.functional.layer_norm", "light"),
        ("torch.linalg.norm", "light"),
        ("torch.nn.BatchNorm2d", "light"),
        ("torch.an_operation_that_is_new", "light"),
        ("torch.empty_like", ""),
        ("torch.Tensor.view", ""),
        ("torch.Tensor.data_ptr", ""),
        ("torch.nn.Sequential", ""),
        ("torch.nn.Parameter", ""),
        ("torch.float16", ""),
        ("torch.uint7", ""),
        ("torch.cuda.current_stream", ""),
        ("torch.backends.cudnn.benchmark", ""),
        ("torch.ops.own.mm", ""),
        ("math.sqrt", ""),
        ("numpy.prod", ""),
    ],
)
def test_weights(name: str, weight: str) -> None:
    assert weight_of(name) == weight


def test_numbers_and_types_of_torch_are_no_operations() -> None:
    kinds = (torch.dtype, torch.layout, torch.memory_format, int, float)
    names = [name for name in dir(torch) if isinstance(getattr(torch, name), kinds) and not name.startswith("_")]
    assert len(names) > 40
    assert [name for name in names if weight_of(f"torch.{name}")] == []


def test_views_and_properties_of_a_tensor_are_no_operations() -> None:
    properties = [name for name in dir(torch.Tensor) if not callable(getattr(torch.Tensor, name)) and name[0] != "_"]
    assert len(properties) > 20
    assert [name for name in properties if weight_of(f"torch.Tensor.{name}")] == []


def test_what_gives_a_tensor() -> None:
    assert gives_tensor("torch.empty")
    assert gives_tensor("torch.relu")
    assert gives_tensor("torch.Tensor.view")
    assert not gives_tensor("torch.Tensor.size")
    assert not gives_tensor("torch.cuda.current_stream")
    assert not gives_tensor("torch.device")
