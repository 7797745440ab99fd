"""The reference as text: renamed, stripped of what asks, given another forward."""

import ast

import pytest

from kbevolve.configs.reference import as_model_new, with_forward, without

TEXT = '''"""A Model of two layers."""
import torch
from torch import nn

#: Rows.
N = 4
#: Smaller here,
#: for want of memory.
CPU_SIZES = {
    "N": 2,
}


class Layer(nn.Module):  # no Model
    Model = None


class Model(nn.Module):
    """Not Layer.Model."""

    def __init__(self, width):
        super(Model, self).__init__()
        self.layer, self.Model = Layer(), Layer.Model

    @torch.no_grad()
    def forward(
        self, x: torch.Tensor, *, times: int = 2
    ) -> torch.Tensor:
        # Twice.
        return times * x

    def copy(self) -> "Model":
        return Model(N)


def get_inputs():
    return [torch.randn(N)]


# The width.
def get_init_inputs():
    return [N]


if __name__ == "__main__":
    print(Model(N)(*get_inputs()))
'''


def test_the_class_is_renamed_wherever_it_is_meant_and_what_asks_is_gone() -> None:
    assert as_model_new(TEXT) == (
        TEXT[: TEXT.index("\n\ndef get_inputs")]
        .replace("class Model(", "class ModelNew(")
        .replace("super(Model, ", "super(ModelNew, ")
        .replace("return Model(", "return ModelNew(")
        .replace('#: Smaller here,\n#: for want of memory.\nCPU_SIZES = {\n    "N": 2,\n}\n', "")
        .rstrip()
        + "\n"
    )


def test_letters_of_several_bytes_before_the_name_do_no_harm() -> None:
    assert as_model_new("class Model: ...\nß = 'ß'; M = Model, Model\n") == (
        "class ModelNew: ...\nß = 'ß'; M = ModelNew, ModelNew\n"
    )


def test_another_forward_keeps_the_signature() -> None:
    text = with_forward(as_model_new(TEXT), "return call([x])[0]", decorator="torch.inference_mode()")
    assert (
        "    @torch.inference_mode()\n"
        "    def forward(self, x: torch.Tensor, *, times: int=2) -> torch.Tensor:\n"
        "        return call([x])[0]\n"
        "\n"
        "    def copy(self)"
    ) in text
    assert "no_grad" not in text
    assert "Twice" not in text


def test_a_model_that_inherits_its_forward_is_refused() -> None:
    with pytest.raises(ValueError, match="no class ModelNew with a forward"):
        with_forward("class ModelNew(Base): ...\n", "return x")


def test_statements_go_with_their_decorators_and_comments() -> None:
    text = "a = 1\n\n\n# why\n@first\n@second\ndef f():\n    pass\n\n\nb = 2\n"
    assert without(text, ast.parse(text).body[1:2]) == "a = 1\n\n\nb = 2\n"
