"""A judge that knows the times of the double's kernels."""

import pytest

from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import session
from tests.evolve.doubles import KnownJudge, kernel


@pytest.fixture(autouse=True)
def judge(monkeypatch: pytest.MonkeyPatch) -> KnownJudge:
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    starts = (StartingKernel(kernel=kernel(), note="naive"),)
    monkeypatch.setattr(session, "new_starts", lambda *_: starts)
    return judge
