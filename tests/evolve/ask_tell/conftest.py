"""A judge that knows the times of the double's kernels."""

import pytest

from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from tests.evolve.doubles import KnownJudge, kernel, replace_starts


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> KnownJudge:
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    starts = (StartingKernel(kernel=kernel(), note="naive"),)
    replace_starts(monkeypatch, *starts)
    return judge
