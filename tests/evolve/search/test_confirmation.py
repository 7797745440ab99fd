"""Which kernels may challenge, and which meet in the final."""

from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Comparison, Evaluation, Kernel, Verdict
from kbevolve.evolve.search.confirmation import Champions
from kbevolve.islands.island import Member
from tests.small_archive import confirmation


def member(name: str, shown: float, *, unquiet: float = 1.01) -> Member:
    evaluation = grouped(Evaluation,
        kernel=name, problem="p", device="d", precision="fp32", verdict=Verdict.CORRECT, speedup=shown * unquiet,
        speedup_low=shown,
    )  # fmt: skip
    kernel = Kernel(id=name, backend=Kernel.from_source("x = 1").backend, source=name)
    return Member(kernel=kernel, evaluation=evaluation, niche="n")


MEMBERS = [member("slow", 0.5), member("quick", 1.5), member("quicker", 2.0), member("reference", 9.0)]


@pytest.fixture
def champions() -> Champions:
    return Champions(reference="reference", finalists=2)


def name(of: Member | None) -> str | None:
    return of.kernel.id if of else None


def won(kernel: str, **changes: Any) -> Any:
    return confirmation("run", kernel, **changes)


def test_the_fittest_faster_than_eager_comes_first_and_the_reference_never(champions: Champions) -> None:
    assert name(champions.challenger(MEMBERS)) == "quicker"
    assert champions.challenger(MEMBERS[:1] + MEMBERS[3:]) is None, "no kernel is faster than eager"


def test_a_challenger_has_a_lower_bound_beyond_the_published_speedup(champions: Champions) -> None:
    champions.record([won("quicker", speedup=1.6)])
    assert champions.challenger(MEMBERS) is None
    assert champions.challenger([*MEMBERS, member("new", 1.61)]) is None, "no improvement of the run: less than 1 %"
    assert name(champions.challenger([*MEMBERS, member("new", 1.62)])) == "new"


def test_a_small_step_to_the_target_is_a_challenge() -> None:
    champions = Champions(reference="reference", finalists=2, target=1.605)
    champions.record([won("quicker", speedup=1.6)])
    assert champions.challenger([member("short", 1.604)]) is None
    assert name(champions.challenger([member("new", 1.61)])) == "new"
    champions.record([won("new", speedup=1.61)])
    assert champions.challenger([member("newer", 1.615)]) is None, "the target is reached"


def test_a_kernel_that_only_looks_faster_does_not_challenge(champions: Champions) -> None:
    champions.record([won("quicker", speedup=1.6)])
    unquiet = member("unquiet", 1.55, unquiet=1.5)
    assert unquiet.fitness > 1.6
    assert champions.challenger([*MEMBERS, unquiet]) is None


def test_a_kernel_that_lost_does_not_challenge_again(champions: Champions) -> None:
    champions.record([won("quicker", comparison=Comparison.TIE)])
    assert name(champions.challenger(MEMBERS)) == "quick"


def test_a_kernel_that_failed_is_excluded(champions: Champions) -> None:
    champions.record([won("quicker")], failed=["quick"])
    champions.record([], failed=["quicker"])
    assert champions.champion is None
    assert champions.challenger(MEMBERS) is None
    assert [name(one) for one in champions.finalists(MEMBERS)] == ["slow"]


def test_the_champion_is_a_finalist_whatever_its_fitness(champions: Champions) -> None:
    assert [name(one) for one in champions.finalists(MEMBERS)] == ["quicker", "quick"]
    champions.record([won("slow")])
    assert [name(one) for one in champions.finalists(MEMBERS)] == ["slow", "quicker"]
    assert champions.finalists(MEMBERS[:1]) == (), "alone, and confirmed already"


def test_one_final_a_generation(champions: Champions) -> None:
    champions.record([won("quick", generation=4), won("quick", purpose="final", generation=7)])
    assert champions.had_final(7)
    assert not champions.had_final(4)
