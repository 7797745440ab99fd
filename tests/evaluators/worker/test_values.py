"""Values in messages: what may be packed, and that it comes out as it was."""

import json
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from kbevolve.evaluators.worker.values import Unpackable, pack, unpack


def test_plain_values_and_tensors_come_out_as_they_were() -> None:
    given = {"a": [1, 2.5, None, "text", (True,)], 3: torch.float16, "t": torch.arange(3)}
    tensors: list[torch.Tensor] = []
    tree = json.loads(json.dumps(pack(given, tensors)))
    found = unpack(tree, tensors)
    assert found["t"] is tensors[0]
    assert {name: value for name, value in found.items() if name != "t"} == {"a": given["a"], 3: torch.float16}


class Config:
    """As transformers has them."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def to_json_string(self, use_diff: bool = True) -> str:
        assert not use_diff, "defaults may differ between versions"
        return json.dumps(self.fields)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("transformers")
    module.AutoConfig = type(
        "AutoConfig", (), {"for_model": staticmethod(lambda model_type, **rest: (model_type, rest))}
    )
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.setattr(Config, "__module__", "transformers.models.gpt2")


@pytest.mark.usefixtures("transformers")
def test_a_configuration_of_transformers_travels_as_its_fields() -> None:
    config = Config(model_type="gpt2", n_layer=2)
    tree = json.loads(json.dumps(pack(["gpt2", config], [])))
    assert unpack(tree, []) == ["gpt2", ("gpt2", {"n_layer": 2})]
    with pytest.raises(Unpackable, match="a Config"):
        pack(config, [], exact=True)  # a kernel's output is none


@pytest.mark.usefixtures("transformers")
def test_other_objects_are_refused() -> None:
    for other in (Config(n_layer=2), object(), {1, 2}):
        with pytest.raises(Unpackable):
            pack(other, [])
