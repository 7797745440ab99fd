"""Hacks that need a GPU: streams, graphs, events, caches, precisions; and attacks on the device."""

from collections.abc import Iterator

import pytest
import torch

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.disk_cache import DiskCache
from tests.hacks.catalogue import GPU, GPU_HACKS, Hack
from tests.hacks.conftest import Judges
from tests.hacks.outcomes import check, words

HONEST = (GPU / "kernels" / "07_stale_memory" / "twin.py").read_text()
#: File, and words of the message.
ATTACKS = (
    ("device_assertion", Verdict.CRASHED, "assert"),
    ("illegal_address", Verdict.CRASHED, "illegal memory access"),
    ("endless_kernel", Verdict.TIMED_OUT, "stopped after"),
    ("memory_bomb", Verdict.CRASHED, "memory"),
)

#: Those that leave no memory for other tests.
GREEDY = ("memory_bomb",)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judges]:
    found = Judges(DiskCache(tmp_path_factory.mktemp("disk_cache")), "cuda", GPU / "problems")
    yield found
    found.close()


@pytest.mark.parametrize("hack", GPU_HACKS, ids=lambda hack: hack.name)
def test_hack(judges: Judges, hack: Hack) -> None:
    check(hack, judges.evaluate(hack.problem, hack.source(), lint_refuses=False))


@pytest.mark.parametrize("hack", GPU_HACKS, ids=lambda hack: hack.name)
def test_twin(judges: Judges, hack: Hack) -> None:
    found = judges.evaluate(hack.problem, hack.source("twin"))
    assert found.verdict is Verdict.CORRECT, words(found)
    assert not set(hack.tags) & set(found.tags), words(found)


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        pytest.param(name, *expected, id=name, marks=[pytest.mark.alone] if name in GREEDY else [])
        for name, *expected in ATTACKS
    ],
)
def test_attack(judges: Judges, name: str, verdict: Verdict, expected: str) -> None:
    found = judges.evaluate("square", (GPU / "attacks" / f"{name}.py").read_text(), lint_refuses=False)
    assert found.verdict is verdict, words(found)
    assert expected in found.message
    after = judges.evaluate("square", HONEST)
    assert after.verdict is Verdict.CORRECT, words(after)
