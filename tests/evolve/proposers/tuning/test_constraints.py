"""Conditions between tunables: what they exclude, and what a hostile one cannot do."""

import pytest

from kbevolve.archive.records import Kernel, Operator
from kbevolve.evolve.proposers.tuning.constraints import fits, idle
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.tunables import values_of
from kbevolve.islands.island import Member
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, problem

VALUES = {"BLOCK": "128", "STAGES": "3", "MODE": '"ieee"', "KIND": "float4"}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("BLOCK * STAGES <= 384", True),
        ("BLOCK * STAGES < 384", False),
        ("BLOCK % 64 == 0 and STAGES - 1 == 2", True),
        ("1 < STAGES < 3", False),
        ("not STAGES == 3 or BLOCK // 64 > 2", False),
        ("KIND == 'float4'", True),
        ("KIND != 'float4'", False),
    ],
)
@pytest.mark.parametrize("mark", ["#", "    //"])
def test_a_condition_is_arithmetic_over_the_tunables(condition: str, holds: bool, mark: str) -> None:
    assert fits(f"BLOCK = 128  # tune: 64, 128\n{mark} tune if: {condition}\n", VALUES) is holds


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('exit')", "BLOCK ** BLOCK ** BLOCK == 0", "'a' * 10**18 == 0", "KIND * BLOCK == 0",
        "ABSENT > 3", "BLOCK // 0 == 1", "KIND < 3", "BLOCK >", "(" * 150, "-" * 150 + "1 == 0",
        "BLOCK == 0 or " + 50 * "BLOCK < 0 or " + "BLOCK < 0", "[BLOCK][0] == 0", "0.5 > BLOCK",
    ],
)  # fmt: skip
def test_what_cannot_be_read_excludes_nothing(condition: str) -> None:
    assert fits(f"# tune if: {condition}\n", VALUES)


def test_no_child_breaks_a_condition() -> None:
    plain = kernel()
    parent = Kernel.from_source(f"{plain.source}\n# tune if: UNROLL * TILE <= 32\n")
    rated = Member(kernel=parent, evaluation=KnownEvaluator().evaluate(problem(), plain), niche="m0")
    for seed in range(40):
        child = TunablesProposer().propose(brief_of(Operator.TUNE, rated, seed=seed)).kernel
        assert child is not None
        values = values_of(child.source)
        assert int(values["UNROLL"]) * int(values["TILE"]) <= 32


HIDDEN = "# tune TILE, STAGES if: FAST or VECTOR == 4\n# tune DEPTH if: STAGES > 1\n"


@pytest.mark.parametrize(
    ("fast", "vector", "stages", "without_effect"),
    [
        ("1", "1", "2", set()),
        ("0", "4", "2", set()),
        ("0", "4", "1", {"DEPTH"}),
        ("0", "1", "2", {"TILE", "STAGES", "DEPTH"}),
    ],
)
def test_a_condition_with_names_says_when_these_have_an_effect(
    fast: str, vector: str, stages: str, without_effect: set[str]
) -> None:
    values = {"FAST": fast, "VECTOR": vector, "TILE": "64", "STAGES": stages, "DEPTH": "2"}
    assert idle(HIDDEN, values) == without_effect
    assert fits(HIDDEN, values)


def test_a_condition_about_all_makes_none_idle() -> None:
    assert idle("# tune if: BLOCK > 1000\n", VALUES) == set()
