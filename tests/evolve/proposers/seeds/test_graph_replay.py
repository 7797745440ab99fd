"""A file of many launches records them once for each place of its tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.replayed import replayed_reference
from kbevolve.evolve.proposers.tuning.tunables import values_of

Tensor = torch.Tensor


class Graph:
    """Does what was recorded again, into the same tensors, as a CUDA graph does."""

    def __init__(self) -> None:
        self.work: Callable[[], None] = lambda: None

    def replay(self) -> None:
        self.work()


class Recorder:
    """Stands for torch on a GPU, and for a function that launches kernels: twice its first tensor plus the others."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls, self.restored, self._fails = 0, 0, fails
        self._recording: Graph | None = None
        random = SimpleNamespace(clone_state=lambda: 7, graphsafe_set_state=self._restore)
        on_gpu = SimpleNamespace(
            CUDAGraph=Graph,
            graph=self._graph,
            current_device=lambda: 0,
            default_generators=[random],
            synchronize=lambda: None,
        )
        self.torch = SimpleNamespace(cuda=on_gpu, Tensor=torch.Tensor)

    def _restore(self, state: int) -> None:
        assert state == 7
        self.restored += 1

    @contextmanager
    def _graph(self, graph: Graph) -> Iterator[None]:
        self._recording = graph
        try:
            yield
        finally:
            self._recording = None

    def call(self, tensors: list[Tensor]) -> list[Tensor]:
        self.calls += 1
        kept, result = tuple(tensors), torch.empty_like(tensors[0])
        tensors.clear()  # as generated code does

        def work() -> None:
            torch.mul(kept[0], 2, out=result)
            for other in kept[1:]:
                result.add_(other)

        if self._recording is None:
            work()
        elif self._fails:
            raise RuntimeError("operation not permitted when stream is capturing")
        else:
            self._recording.work = work
        return [result]


def replay_of(recorder: Recorder, *, replayed: int = 1) -> Any:
    scope: dict[str, Any] = {"torch": recorder.torch, "call": recorder.call}
    text = template("graph_replay").replace("REPLAYED = 0", f"REPLAYED = {replayed}")
    exec(f"{text}\n\nreplay = Replay(call)\n", scope)
    return scope["replay"]


def test_a_third_call_at_the_same_place_is_replayed_on_new_contents() -> None:
    recorder = Recorder()
    replay, x, weight = replay_of(recorder), torch.zeros(3), torch.ones(3)
    results = []
    for number in range(5):
        x.fill_(number)
        weight.fill_(10 * number)
        results += replay([x, weight], x)
    assert recorder.calls == 2
    # The second call is recorded and replayed; results are tensors of their own.
    assert [result.tolist() for result in results] == [[12.0 * number] * 3 for number in range(5)]


def test_each_place_and_form_has_a_graph_and_few_are_kept() -> None:
    recorder = Recorder()
    replay, x = replay_of(recorder), torch.arange(6.0)
    for _ in range(3):
        for form in (x.view(2, 3), x.view(3, 2), x.view(3, 2).t(), x[:3]):
            (result,) = replay([form], form)
            assert torch.equal(result, 2 * form)
    assert recorder.calls == 2 * 4
    others = [torch.ones(2) for _ in range(4)]
    for other in others:
        replay([other], other)
    replay([x[:3]], x[:3])
    assert recorder.calls == 2 * 4 + 5, "the oldest were given up"


def test_what_cannot_be_recorded_is_called() -> None:
    recorder = Recorder(fails=True)
    replay, x = replay_of(recorder), torch.ones(3)
    for number in range(4):
        x.fill_(number)
        assert replay([x], x)[0].tolist() == [2.0 * number] * 3
    assert recorder.restored == 1


GRU = '''"""A recurrent layer."""

from __future__ import annotations
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.GRU(size, size)

    def forward(self, x, h):
        return self.layer(x, h)


def get_inputs():
    return []


def get_init_inputs():
    return [4]
'''


def test_a_reference_in_a_graph_is_the_reference() -> None:
    source = replayed_reference(GRU)
    assert "get_inputs" not in source
    assert source.startswith("from __future__ import annotations\nimport torch\n")
    assert values_of(source) == {"REPLAYED": "1"}
    names: dict[str, Any] = {}
    exec(compile(source, "kernel.py", "exec"), names)
    torch.manual_seed(0)
    kernel = names["ModelNew"](4)
    assert [*kernel.state_dict()] == [*names["Reference"](4).state_dict()]
    x, h = torch.randn(5, 2, 4), torch.randn(1, 2, 4)
    with torch.no_grad():
        wanted = kernel.layer(x, h)
    for found, one in zip(kernel(x, h), wanted, strict=True):
        assert torch.equal(found, one), "on a CPU it is called"
    assert type(kernel.results([x, h])) is list
    assert kernel.form is tuple


@pytest.mark.parametrize("replayed", [0, 1])
def test_it_is_a_tunable(replayed: int) -> None:
    recorder = Recorder()
    replay, x = replay_of(recorder, replayed=replayed), torch.ones(3)
    for _ in range(4):
        replay([x], x)
    assert recorder.calls == (2 if replayed else 4)
