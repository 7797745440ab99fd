"""The files of docs/extending.md do what the page says."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Operator
from kbevolve.configs.problem import parse_problem
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.islands.island import Member
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, problem, settings

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
#: Name -> the file of the page.
FILES = {name: text for name, text in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL)}


@pytest.mark.slow
def test_the_problem_can_be_judged(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "my_problem.py"
    file.write_text(FILES["my_problem"])
    assert "ROWS, COLUMNS = 256, 512" in parse_problem(file.read_text(), name="my_problem", path=file).source_for("cpu")
    checked = kbevolve("problems", "check", file, "--device", "cpu")
    assert checked.code == 0, checked.err
    assert "degenerate" not in checked.out
    assert "rms" in kbevolve("problems", "show", file, "--graph", "--device", "cpu").out


def test_the_proposer_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_proposer.py").write_text(FILES["my_proposer"])
    monkeypatch.syspath_prepend(tmp_path)
    chosen = settings().model_copy(update={"proposer": "my_proposer:OneTunable"})
    proposer = build_proposers(chosen)[Operator.MUTATE]
    parent = kernel(UNROLL=2)
    member = Member(kernel=parent, evaluation=KnownEvaluator().evaluate(problem(), parent), niche="m0c0d0l0")
    asked = brief_of(Operator.MUTATE, member, child="g1/i0/s0", seed=11)
    child = proposer.propose(asked)
    assert child == proposer.propose(replace(asked, rng=Random(11)))
    assert child.kernel is not None
    before, after = ({one.name: one.value for one in declared(text)} for text in (parent.source, child.kernel.source))
    assert len(after.items() - before.items()) == 1
    known = replace(asked, known=lambda _: True)
    assert proposer.propose(known).state is BirthState.EXHAUSTED
