"""A submission is found by KernelBot's directives, loads beside a task.py, and computes what the reference computes."""

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.exports.gpumode import check_submission, gpumode
from kbevolve.evolve.exports.measured import MeasuredKernel
from tests.evolve.exports.kernels import GPU, KERNEL, PLAIN, PLAIN_KERNEL, measured, reference_of, weights_of


def directives(submission: str) -> dict[str, list[str]]:
    """What KernelBot reads: the lines of the first block of comments that begin with ``#!POPCORN``."""
    head = itertools.takewhile(lambda line: line.startswith("#"), submission.splitlines())
    words = [line.split() for line in head]
    return {name: values for mark, name, *values in (line for line in words if line[0] == "#!POPCORN")}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The platform in small: submission.py lies beside the types of task.py, and its custom_kernel is imported."""
    (tmp_path / "task.py").write_text(
        "from typing import TypeVar\n\ninput_t, output_t = TypeVar('input_t'), TypeVar('output_t')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("task", "submission"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def loaded(found: MeasuredKernel) -> Any:
        (tmp_path / "submission.py").write_text(gpumode(found))
        custom_kernel = importlib.import_module("submission").custom_kernel
        task = vars(importlib.import_module("task"))
        assert get_type_hints(custom_kernel, task) == {"data": task["input_t"], "return": task["output_t"]}
        return custom_kernel

    yield loaded
    for name in ("task", "submission"):
        sys.modules.pop(name, None)


def test_it_names_its_leaderboard_and_its_gpu_above_the_provenance() -> None:
    submission = gpumode(measured(task="fused_v2", device=GPU))
    assert directives(submission) == {"leaderboard": ["fused_v2"], "gpu": ["H100"]}
    assert submission.splitlines()[2].startswith("# Exported by kbevolve")
    assert directives(gpumode(measured(task="fused_v2"))) == {"leaderboard": ["fused_v2"]}  # a CPU is no GPU


@pytest.mark.parametrize("given", ["in order", "in order, then memory", "by name, then settings"])
def test_the_weights_follow_the_inputs(load: Any, given: str) -> None:
    found = measured(task="fused")
    custom_kernel = load(found)
    for _ in range(2):  # other weights and inputs in each call, as a leaderboard's seeds give them
        model, inputs = reference_of(found)
        weights = weights_of(model)
        data = {
            "in order": (*inputs, *weights.values()),
            "in order, then memory": (*inputs, *weights.values(), torch.empty(6, 5)),
            "by name, then settings": [*inputs, {**weights, "more": torch.empty(1)}, {"size": 6}],
        }[given]
        torch.testing.assert_close(custom_kernel(data), tuple(one.detach() for one in model(*inputs)))


def test_weights_that_are_missing_are_an_error_and_no_guess(load: Any) -> None:
    custom_kernel = load(measured(task="fused"))
    model, inputs = reference_of(measured())
    with pytest.raises(ValueError, match="shorter"):
        custom_kernel((*inputs, *list(weights_of(model).values())[:3]))
    with pytest.raises(KeyError, match=r"linear\.weight"):
        custom_kernel((*inputs, {}))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: (x, torch.empty_like(x))])
def test_without_weights_the_data_is_a_tensor_or_a_tuple(load: Any, wrap: Any) -> None:
    custom_kernel = load(measured(source=PLAIN_KERNEL, problem=PLAIN, task="softmax"))
    data = torch.randn(4, 7)  # not the size it was judged with: leaderboards have several
    torch.testing.assert_close(custom_kernel(wrap(data)), torch.softmax(data, -1))


def test_without_a_task_beside_it_it_is_a_modelnew_file() -> None:
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(gpumode(measured(source=PLAIN_KERNEL, problem=PLAIN, task="softmax")), namespace)
    assert issubclass(namespace["ModelNew"], torch.nn.Module)


def test_the_word_that_kernelbot_does_not_accept_is_found_before_it_finds_it() -> None:
    launch = KERNEL.replace("CALLS = []", "CALLS = []\nSTREAM = torch.cuda.current_stream")
    with pytest.raises(UsageError, match='no file with the word "stream", and line 6 has it; export it as modelnew'):
        check_submission(Kernel.from_source(launch))
    check_submission(Kernel.from_source(KERNEL))


def test_the_header_does_not_say_that_word_either() -> None:
    found = measured(task="fused")
    line = "#   97ed12eecafed1cf  g3    mutate     4.000x  Streaming reads\n"
    end = "# ---- end of provenance ----\n"
    noted = measured(task="fused").text.replace(end, line + end)
    submission = gpumode(MeasuredKernel(**{name: getattr(found, name) for name in found.__slots__} | {"text": noted}))
    assert submission == gpumode(found)


def test_a_kernel_with_names_of_the_submission_is_refused() -> None:
    own = KERNEL.replace("CALLS = []", "CALLS = []\n\n\ndef custom_kernel(x):\n    return x\n")
    with pytest.raises(UsageError, match="it has a custom_kernel of its own"):
        check_submission(Kernel.from_source(own))


def test_the_kernel_itself_is_unchanged() -> None:
    found = measured(task="fused")
    submission = gpumode(found)
    kernel = submission[submission.index("# ---- end of") : submission.index("# ---- what the leaderboard")]
    assert Kernel.from_source(kernel).id == found.kernel.id
