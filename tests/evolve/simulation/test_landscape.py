"""What every landscape promises, and what every move does on it."""

from random import Random

import pytest

from kbevolve.evolve.simulation.landscape import Landscape, Program, ProgramFailure, ProgramOutcome, families
from kbevolve.evolve.simulation.moves import along, crossed, potential, retuned, rewritten, taken_over, ways_out


def programs(landscape: Landscape, count: int, seed: int = 0) -> list[Program]:
    """Programs at random among those that exist."""
    rng = Random(seed)
    found: list[Program] = []
    while len(found) < count:
        program = tuple(rng.randrange(gene.choices) for gene in landscape.genes)
        if landscape.exists(program):
            found.append(program)
    return found


def timed(outcome: ProgramOutcome) -> tuple[float, ...]:
    assert isinstance(outcome, tuple)
    return outcome


def changed(before: Program, after: Program) -> list[int]:
    return [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def test_starts_are_valid_and_far_from_the_optimum(landscape: Landscape) -> None:
    assert landscape.start()
    for program in landscape.start():
        value = landscape.true_value(program)
        assert landscape.exists(program)
        assert value is not None
        assert value < landscape.optimum - 0.3


def test_no_program_beats_the_optimum(landscape: Landscape) -> None:
    values = [landscape.true_value(program) for program in programs(landscape, 1000)]
    assert max(value for value in values if value is not None) <= landscape.optimum + 1e-12


def test_a_program_either_fails_or_is_timed(landscape: Landscape) -> None:
    failures = 0
    for program in programs(landscape, 200):
        outcome, failure = landscape.measure(program, Random(1)), landscape.failure(program)
        assert (outcome == failure) == isinstance(outcome, ProgramFailure)
        assert (landscape.true_value(program) is None) == (failure is not None) == isinstance(outcome, ProgramFailure)
        failures += failure is not None
    assert 0 < failures < 180


def test_samples_lie_around_the_true_value_and_differ(landscape: Landscape) -> None:
    for program in landscape.start():
        value = landscape.true_value(program)
        assert value is not None
        rng = Random(2)
        samples = [sample for _ in range(300) for sample in timed(landscape.measure(program, rng))]
        assert len(set(samples)) > 1
        assert sum(samples) / len(samples) == pytest.approx(-value, abs=0.005)
        assert max(samples) - min(samples) < 0.25


def test_the_same_random_gives_the_same_answers(landscape: Landscape) -> None:
    (program,) = programs(landscape, 1, seed=3)
    assert landscape.measure(program, Random(4)) == landscape.measure(program, Random(4))
    assert landscape.niche(program) == landscape.niche(program)


def test_niches_are_many_but_few_beside_programs(landscape: Landscape) -> None:
    everyone = programs(landscape, 500)
    assert 3 <= len({landscape.niche(program) for program in everyone}) <= 256


def test_a_step_along_an_idea_changes_its_family_and_at_most_so_many_genes(landscape: Landscape) -> None:
    rng = Random(5)
    for program in programs(landscape, 50):
        for family, positions in families(landscape.genes).items():
            for edits in (1, 3):
                child = along(landscape, program, family, edits, rng)
                assert landscape.exists(child)
                assert len(changed(program, child)) <= edits
                assert child == program or set(changed(program, child)) & set(positions)


def test_tuning_leaves_techniques_alone(landscape: Landscape) -> None:
    rng = Random(6)
    for program in programs(landscape, 100):
        child = retuned(landscape, program, 2, rng)
        assert child != program
        assert not any(landscape.genes[at].rung for at in changed(program, child))


def test_a_crossing_has_every_family_from_a_parent(landscape: Landscape) -> None:
    first, *others = programs(landscape, 20, seed=7)
    second = max(others, key=lambda other: len(changed(first, other)))
    seen = {crossed(landscape, first, second, Random(seed)) for seed in range(40)}
    assert len(seen) > 2
    for child in seen:
        for positions in families(landscape.genes).values():
            part = [child[at] for at in positions]
            assert part in ([first[at] for at in positions], [second[at] for at in positions])


def test_a_rewrite_changes_more_than_an_edit(landscape: Landscape) -> None:
    family = landscape.genes[0].family
    counts = [
        len(changed(program, rewritten(landscape, program, family, Random(8)))) for program in programs(landscape, 60)
    ]
    assert sum(counts) / len(counts) > min(3, 0.4 * len(landscape.genes))


def test_a_technique_can_be_taken_over(landscape: Landscape) -> None:
    first, second = programs(landscape, 2, seed=9)
    for family, positions in families(landscape.genes).items():
        child = taken_over(landscape, first, second, family)
        if child != first:
            assert [child[at] for at in positions] == [second[at] for at in positions]
            assert set(changed(first, child)) <= set(positions)


def test_a_way_out_of_a_fault_is_one_gene_away_and_valid(landscape: Landscape) -> None:
    failing = [program for program in programs(landscape, 300) if landscape.failure(program)]
    found = 0
    for program in failing:
        out = ways_out(landscape, program, Random(10))
        if out is not None:
            found += 1
            assert landscape.failure(out) is None
            assert len(changed(program, out)) == 1
    assert found > 0.3 * len(failing)


def test_potential_is_what_one_gene_of_the_family_can_bring(landscape: Landscape) -> None:
    start = landscape.start()[0]
    hidden = {family: potential(landscape, start, family) for family in families(landscape.genes)}
    assert all(gain >= 0 for gain in hidden.values())
    assert max(hidden.values()) > 0.1
