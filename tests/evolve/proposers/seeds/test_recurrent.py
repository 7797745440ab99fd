"""Recurrent layers of the reference become those of the template, which are torch's own where no kernel can be."""

import re
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from kbevolve.archive.records import Backend, Kernel
from kbevolve.evolve.proposers.seeds.recurrent import with_recurrent_layers
from kbevolve.evolve.proposers.tuning.constraints import idle
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of

PROBLEM = '''"""Two recurrent layers, an ä before each."""

from __future__ import annotations
import torch
import torch.nn as nn
from torch.nn import LSTM as Layer, Linear


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.a, self.layer = "ä", nn.GRU(size, size, num_layers=2, batch_first=True)
        self.b, self.other = "ä", Layer(size, size, bidirectional=True)
        self.third = torch.nn.LSTM(size, size)
        self.last = Linear(2 * size, size)

    def forward(self, x, h):
        x, _ = self.layer(x, h)
        x, (h, c) = self.other(x)
        return self.last(x), h, c, self.third(x[..., : x.shape[-1] // 2])[0]


def get_inputs():
    return [torch.rand(3, 5, 4), torch.rand(2, 3, 4)]


def get_init_inputs():
    return [4]
'''


def test_its_layers_are_the_templates_and_torchs_where_no_kernel_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_recurrent_layers(PROBLEM)
    assert source is not None
    assert source.startswith("from __future__ import annotations\n")
    tunables = {one.name for one in declared(source)}
    assert {"SPLIT_N", "RECURRENT_SLOTS", "RECURRENT_GROUPS", "RECURRENT_SPLIT"} <= tunables
    assert "SPLIT_N" in idle(source, values_of(source) | {"RECURRENT_SPLIT": "0"})
    assert Kernel.from_source(source).backend is Backend.TRITON
    for expected in ("RecurrentGRU(size, size, num", "RecurrentLSTM(size, size, bi", "RecurrentLSTM(size, size)\n"):
        assert expected in source
    for name in re.findall(r"^(?:import|from) (triton[.\w]*)", source, re.M):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    names: dict[str, Any] = {}
    exec(compile(source, "kernel.py", "exec"), names)
    exec(compile(PROBLEM, "problem.py", "exec"), names)
    kernel, reference = names["ModelNew"](4), names["Model"](4)
    reference.load_state_dict(kernel.state_dict())
    with torch.no_grad():
        for inputs in (names["get_inputs"](), [torch.rand(3, 5, 4), None]):
            for found, wanted in zip(kernel(*inputs), reference(*inputs), strict=True):
                assert torch.equal(found, wanted)


@pytest.mark.parametrize("layer", ["nn.RNN(size, size)", "nn.Linear(size, size)", "GRU(size)"])
def test_other_layers_give_no_kernel(layer: str) -> None:
    assert with_recurrent_layers(f"import torch.nn as nn\n\n\nclass Model:\n    layer = {layer}\n") is None
