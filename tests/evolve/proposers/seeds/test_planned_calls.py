"""Templates' launches: compiled side by side, launched in order."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import torch

from kbevolve.configs.templates import template


class Kernel:
    """Stands for a Triton kernel with two pointers, a number and a constant."""

    arg_names = ("x", "y", "count", "BLOCK")

    def __init__(self, name: str, together: threading.Barrier, launches: list[tuple[Any, ...]]) -> None:
        self.name, self.together, self.launches = name, together, launches
        self.compiled = 0

    def warmup(self, *arguments: Any, grid: tuple[int, ...], BLOCK: int) -> SimpleNamespace:
        self.together.wait(timeout=20)  # breaks where others are not compiled meanwhile
        self.compiled += 1
        return SimpleNamespace(run=functools.partial(self.launched, self.name), function=7, packed_metadata=())

    def launched(self, *arguments: Any) -> None:
        self.launches.append(arguments)


def test_kernels_of_a_call_are_compiled_side_by_side_and_launched_in_order() -> None:
    text = template("imports")
    names: dict[str, Any] = {"functools": functools, "ThreadPoolExecutor": ThreadPoolExecutor}
    exec(text[text.index("class Pointer") : text.index("class Room")], names)
    exec(text[text.index("class PlannedLaunch") : text.index("def stream_of")], names)
    names["stream_of"] = lambda x: 5
    together, launches = threading.Barrier(3), list[tuple[Any, ...]]()
    kernels = [Kernel(name, together, launches) for name in ("first", "second", "third")]
    planned = [names["PlannedLaunch"](kernel, (8,), (3,), BLOCK=64) for kernel in kernels]
    call = names["PlannedCall"](lambda stream, *pointers: [one.at(stream, *pointers) for one in planned])
    x, y = torch.zeros(2), torch.zeros(2)
    for _ in range(2):
        call(x, y)
    call(y, x)  # other memory: planned again, with the same kernels
    assert [kernel.compiled for kernel in kernels] == [1, 1, 1]
    assert [name for name, *_ in launches] == ["first", "second", "third"] * 3
    assert launches[0] == ("first", 8, 1, 1, 5, 7, (), None, None, None, x.data_ptr(), y.data_ptr(), 3, 64)
    assert launches[-1][-4:] == (y.data_ptr(), x.data_ptr(), 3, 64)
