"""A run whose judge finds identical binaries: they cost nothing, and no island has two of them."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.cli.render.formats import count_words
from kbevolve.evolve.runs.evaluators import search_judge
from kbevolve.evolve.search.search import Search
from kbevolve.islands.source.canonical import shell_of
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, open_run, search, settings, values_of


class SparingEvaluator(KnownEvaluator):
    """With small tiles, every PACK compiles to the same binary; all other kernels differ."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        super().__init__(interrupt_at)
        self.known: dict[str, Evaluation] = {}
        self.paid = 0

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        values = values_of(kernel.source)
        packed = values.get("PACK") if int(values.get("TILE", 8)) >= 32 else "never"
        code = f"{values.get('UNROLL')}/{values.get('TILE')}/{packed}"
        found = changed(super().evaluate(problem, kernel), binary_hash=code)
        first = self.known.setdefault(code, found)
        if first.kernel != kernel.id:
            return changed(first, kernel=kernel.id, identical_to=first.kernel)
        self.paid += 1
        return found


def ran(archive: Archive, evaluator: Evaluator, confirmer: KnownConfirmer | None = None) -> Search:
    chosen = settings(generations=20, evaluation={"confirm_rounds": 2, "finalists": 5})
    run = archive.runs.summaries()[0].run if archive.runs.summaries() else open_run(archive, chosen)
    searching = search(archive, run, chosen, evaluator, confirmer=confirmer)  # type: ignore[arg-type]
    searching.run()
    return searching


def test_identical_binaries_are_free_and_share_no_island() -> None:
    archive, evaluator, confirmer = Archive(":memory:"), SparingEvaluator(), KnownConfirmer()
    searching = ran(archive, evaluator, confirmer)
    population, run = searching.population, archive.runs.get()
    found = archive.runs.evaluations(run.id)
    identical = {name for name, one in found.items() if one.compiled.identical_to is not None}
    assert len(identical) == population.totals.identical > 3, "this landscape has them"
    assert population.totals.evaluations == evaluator.paid == len(found) - len(identical)
    assert f"correct ({len(identical)} with identical binaries)" in count_words(population.totals)
    assert throughput_of(run, archive.runs.births(run.id), found.values()).identical_binaries == len(identical)
    for island in population.islands:
        codes = [member.evaluation.compiled.binary_hash for member in island.members]
        assert len(set(codes)) == len(codes) > 3
    assert not identical & {kernel for met in confirmer.met for kernel in met}
    assert searching.context.view.contenders(generation=99, above=0.0, count=99)
    assert not identical & set(searching.context.view.contenders(generation=99, above=0.0, count=99))
    best = archive.runs.summaries()[0].best
    assert best is not None
    assert best.kernel not in identical


def test_a_kernel_that_fails_in_a_contest_withdraws_its_identical_ones() -> None:
    archive, confirmer = Archive(":memory:"), KnownConfirmer()
    ran(archive, SparingEvaluator(), confirmer)
    met = {kernel for kernels in confirmer.met for kernel in kernels}
    copied = {
        one.compiled.identical_to
        for one in archive.runs.evaluations(archive.runs.get().id).values()
        if one.compiled.identical_to is not None
    }
    assert met & copied, "no kernel with identical ones was good enough for a contest"
    archive = Archive(":memory:")
    searching = ran(archive, SparingEvaluator(), KnownConfirmer(failing=met & copied))
    failed = archive.runs.failed(archive.runs.get().id)
    followers = {
        name
        for name, one in archive.runs.evaluations(archive.runs.get().id).items()
        if one.compiled.identical_to in failed
    }
    assert followers
    assert followers <= failed
    best = searching.population.best()
    assert best is not None
    assert best.kernel.id not in failed
    assert archive.runs.summary(archive.runs.get()).best_kernel not in failed


def test_a_kernel_with_the_binary_of_another_runs_kernel_is_a_kernel_of_this_run() -> None:
    archive = Archive(":memory:")
    searching = ran(archive, SparingEvaluator())
    births = archive.runs.births(archive.runs.get().id)
    twin = next(
        one
        for one in archive.runs.evaluations(archive.runs.get().id).values()
        if one.compiled.identical_to is not None and one.verdict is Verdict.CORRECT
    )
    other = open_run(archive, settings(generations=1), "double-2")
    for birth in births:
        if birth.kernel == twin.kernel:
            archive.add_birth(replace(birth, run=other.id))
    assert searching.context.view.contenders(generation=99, above=0.0, count=99)
    assert archive.run_view(other).contenders(generation=99, above=0.0, count=99) == [twin.kernel]


@pytest.mark.parametrize("cut", [9, *(pytest.param(cut, marks=pytest.mark.slow) for cut in (1, 5, 14))])
def test_an_interrupted_run_with_identical_binaries_ends_as_the_undisturbed_one(tmp_path: Path, cut: int) -> None:
    whole = Archive(":memory:")
    undisturbed = ran(whole, SparingEvaluator())
    with Archive(tmp_path / "cut.db") as archive:
        first = SparingEvaluator(interrupt_at=cut)
        with pytest.raises(KeyboardInterrupt):
            ran(archive, first)
    with Archive(tmp_path / "cut.db") as archive:
        second = SparingEvaluator()
        second.known = first.known
        resumed = ran(archive, second)
        assert archive.runs.evaluations(archive.runs.get().id) == whole.runs.evaluations(whole.runs.get().id)
        assert sorted(map(str, archive.runs.placements(archive.runs.get().id))) == sorted(
            map(str, whole.runs.placements(whole.runs.get().id))
        )
        assert resumed.population.islands == undisturbed.population.islands
        assert resumed.population.totals.evaluations == undisturbed.population.totals.evaluations
        assert resumed.population.totals.identical == undisturbed.population.totals.identical


def test_the_judge_of_a_search_compares_binaries(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(Judge=lambda device, settings, **options: options)
    monkeypatch.setitem(sys.modules, "kbevolve.evaluators.judging.judge", module)
    options: Any = search_judge(find_device("cpu"), EvaluationSettings(), width=1)
    assert options == {"shell_of": shell_of, "width": 1}
