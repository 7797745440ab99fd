"""What only a GPU can be fooled by: streams, graphs, events, caches, precisions; and attacks on the device."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.shelf import Shelf
from tests.gpu.hacks.catalogue import GPU_HACKS
from tests.hacks.catalogue import Expected, Hack
from tests.hacks.conftest import Court
from tests.hacks.test_hacks import LARGEST_LIE, SECRETS, words

HERE = Path(__file__).parent
HONEST = (HERE / "kernels" / "07_stale_memory" / "twin.py").read_text()
#: File, and words of the message.
ATTACKS = (
    ("device_assertion", Verdict.CRASHED, "assert"),
    ("illegal_address", Verdict.CRASHED, "illegal memory access"),
    ("endless_kernel", Verdict.TIMED_OUT, "stopped after"),
    ("memory_bomb", Verdict.CRASHED, "memory"),
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    found = Court(Shelf(tmp_path_factory.mktemp("shelf")), "cuda", HERE / "problems")
    yield found
    found.close()


def source_of(hack: Hack, name: str) -> str:
    return (HERE / "kernels" / hack.folder / f"{name}.py").read_text()


def ordered() -> list[Hack]:
    """By problem: setting one up costs more than an evaluation."""
    return sorted(GPU_HACKS, key=lambda hack: hack.problem)


def with_twins() -> list[Hack]:
    return [hack for hack in ordered() if (HERE / "kernels" / hack.folder / "twin.py").exists()]


@pytest.mark.parametrize("hack", ordered(), ids=lambda hack: hack.folder)
def test_hack(court: Court, hack: Hack) -> None:
    found = court.evaluate(hack.problem, source_of(hack, "hack"), lint_refuses=False)
    match hack.expected:
        case Expected.CAUGHT:
            assert found.verdict is not Verdict.CORRECT, words(found)
        case Expected.HARMLESS if found.verdict is Verdict.CORRECT:
            assert found.speedup_low is not None
            assert found.speedup_low <= LARGEST_LIE, words(found)
        case Expected.ALLOWED:
            assert found.verdict is Verdict.CORRECT, words(found)
    assert found.verdict is not Verdict.CORRECT or set(hack.tags) <= set(found.tags), words(found)
    # Refused for what it does, or wrong: a hack that does not build, or fails as it stands, proves nothing.
    assert found.verdict is not Verdict.BUILD_FAILED, words(found)
    assert not SECRETS.search(found.message), found.message


@pytest.mark.parametrize("hack", with_twins(), ids=lambda hack: hack.folder)
def test_twin(court: Court, hack: Hack) -> None:
    found = court.evaluate(hack.problem, source_of(hack, "twin"))
    assert found.verdict is Verdict.CORRECT, words(found)


@pytest.mark.parametrize(("name", "verdict", "expected"), ATTACKS, ids=[name for name, *_ in ATTACKS])
def test_attack(court: Court, name: str, verdict: Verdict, expected: str) -> None:
    found = court.evaluate("square", (HERE / "attacks" / f"{name}.py").read_text(), lint_refuses=False)
    assert found.verdict is verdict, words(found)
    assert expected in found.message
    after = court.evaluate("square", HONEST)
    assert after.verdict is Verdict.CORRECT, words(after)


def test_the_catalogue_holds_every_folder() -> None:
    folders = sorted(path.name for path in (HERE / "kernels").iterdir() if path.is_dir())
    assert folders == sorted(hack.folder for hack in GPU_HACKS)
