"""Lines of descent: main parents first, every ancestor once, whatever shape the family has."""

from typing import Any

from kbevolve.archive.lineage import first_births, lineage, main_line
from kbevolve.archive.records import Birth, BirthState, Operator


def birth(kernel: str | None, *parents: str, generation: int = 0, island: int = 0) -> Birth:
    return Birth(
        run="r",
        generation=generation,
        island=island,
        slot=0,
        operator=Operator.CROSS if len(parents) > 1 else Operator.MUTATE if parents else Operator.SEED,
        state=BirthState.CREATED if kernel else BirthState.NO_CODE,
        parents=parents,
        kernel=kernel,
    )


def names(births: tuple[Birth, ...]) -> list[str | None]:
    return [one.kernel for one in births]


def test_the_main_line_runs_back_to_a_starting_kernel() -> None:
    births = [birth("a"), birth("x"), birth("b", "a"), birth(None, "b"), birth("c", "b", "x")]
    assert names(main_line("c", births)) == ["c", "b", "a"]
    assert names(main_line("a", births)) == ["a"]
    assert main_line("unknown", births) == ()
    assert lineage("unknown", births) == ()


def test_the_first_birth_counts() -> None:
    births = [birth("a"), birth("x"), birth("b", "a"), birth("b", "x")]
    assert first_births(births)["b"].parents == ("a",)
    assert names(main_line("b", births)) == ["b", "a"]


def test_a_crossing_has_a_branch_that_ends_where_it_meets_the_line() -> None:
    births = [birth("a"), birth("x"), birth("b", "a"), birth("y", "x", "a"), birth("c", "b", "y")]
    line = lineage("c", births)
    assert [one.birth.kernel for one in line] == ["c", "b", "a"]
    (branch,) = line[0].branches
    assert [one.birth.kernel for one in branch] == ["y", "x"]
    assert branch[0].branches == ()
    assert branch[0].met == ("a",)
    assert line[0].met == ()


def test_a_parent_that_was_born_elsewhere_ends_the_line() -> None:
    assert names(main_line("b", [birth("b", "of another run")])) == ["b"]
    (only,) = lineage("c", [birth("c", "of another run", "and another")])
    assert only.met == ("and another",)


def test_a_circle_of_parents_ends() -> None:
    births = [birth("a", "b"), birth("b", "a"), birth("c", "c")]
    assert names(main_line("a", births)) == ["a", "b"]
    assert names(main_line("c", births)) == ["c"]


def test_long_and_tangled_families_are_quick() -> None:
    """A line of 5000 is no recursion, and 200 generations of crossings do not double each time."""
    births = [birth("0")] + [birth(str(n), str(n - 1), generation=n) for n in range(1, 5000)]
    assert len(lineage("4999", births)) == 5000
    births = [birth("a0"), birth("b0")]
    for n in range(1, 200):
        births += [birth(f"a{n}", f"a{n - 1}", f"b{n - 1}"), birth(f"b{n}", f"b{n - 1}", f"a{n - 1}")]
    line = lineage("a199", births)

    def count(part: Any) -> int:
        return sum(1 + sum(count(branch) for branch in one.branches) for one in part)

    assert len(line) == 200
    assert count(line) == 399  # all ancestors, each once: b199 is none
