"""Children that need no judge: kernels that the run has under other names, and near-duplicates of failures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Verdict
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import throughput_of
from kbevolve.evolve.cli.render.formats import count_words
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.state.attempts import REMEMBERED, Failure, Likeness, known_failures
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, kernel, open_run, search, settings

BODY = "\n".join(f"        value = value * {number} + x" for number in range(40))
START = f"""UNROLL = 2  # tune: 1, 2, 4
SCALE = 1


class ModelNew:
    def forward(self, x):
        value = 0
{BODY}
        return value
"""
RENAMED = START.replace("value", "total").replace("UNROLL = 2  # tune: 1, 2, 4", "UNROLL = 2")
BROKEN = START.replace("return value", "return broken(value)")
NEARLY = BROKEN.replace("SCALE = 1", "SCALE = 3")
FRESH = START.replace("UNROLL = 2", "UNROLL = 4")


def created(source: str, **facts: Any) -> Proposal:
    return Proposal(state=BirthState.CREATED, kernel=Kernel.from_source(source), note="as reported", model="m", **facts)


class Writer:
    """Writes the sources of a script, generation by generation; repairs have a script of their own."""

    def __init__(self, sources: Mapping[int, str], repairs: Mapping[int, str] | None = None) -> None:
        self.sources, self.repairs = sources, repairs or {}
        self.briefs: list[Brief] = []

    def propose(self, brief: Brief) -> Proposal:
        self.briefs.append(brief)
        generation = int(brief.child.partition("/")[0].removeprefix("g"))
        return created((self.repairs if brief.repair else self.sources)[generation])


def make(archive: Archive, writer: Writer, evaluator: KnownEvaluator, *, repair_turns: int = 1) -> Search:
    chosen = settings(generations=len(writer.sources), islands=1, tune_share=0.0, repair_turns=repair_turns)
    run = archive.runs.get() if archive.runs.summaries() else open_run(archive, chosen)
    scripted = ScriptedProposer(writer.propose)
    proposers: dict[Operator, Proposer] = dict.fromkeys((Operator.MUTATE, Operator.REPAIR), scripted)
    return search(archive, run, chosen, evaluator, proposers=proposers, starts=[Kernel.from_source(START)])


def searched(writer: Writer, **options: Any) -> tuple[Archive, KnownEvaluator, Search]:
    archive, evaluator = Archive(":memory:"), KnownEvaluator()
    searching = make(archive, writer, evaluator, **options)
    searching.run()
    return archive, evaluator, searching


def births(archive: Archive) -> dict[str, Birth]:
    return {birth.id.partition("/")[2]: birth for birth in archive.runs.births(archive.runs.get().id)}


# ---- under other names -----------------------------------------------------------------------------------------------


def test_a_kernel_under_other_names_is_a_duplicate_and_costs_nothing() -> None:
    archive, evaluator, searching = searched(Writer({1: RENAMED, 2: FRESH, 3: RENAMED.replace("total", "all_of_it")}))
    start, renamed = Kernel.from_source(START), Kernel.from_source(RENAMED)
    found = births(archive)["g1/i0/s0"]
    assert (found.state, found.kernel, found.proposed_kernel) == (BirthState.DUPLICATE, start.id, renamed.id)
    assert found.note == f"{start.id} under other names: as reported"
    assert archive.kernels.get(renamed.id).source == RENAMED, "what was written is kept"
    assert births(archive)["g3/i0/s0"].kernel == start.id
    assert births(archive)["g2/i0/s0"].proposed_kernel is None
    assert set(evaluator.asked) == {start.id, Kernel.from_source(FRESH).id}
    assert searching.population.totals.evaluations == 2
    assert searching.population.totals.renamed == 2
    assert "2 duplicate (2 under other names)" in count_words(searching.population.totals)


def test_the_very_same_kernel_is_a_duplicate_of_itself() -> None:
    archive, evaluator, searching = searched(Writer({1: START + "# a comment\n"}))
    found = births(archive)["g1/i0/s0"]
    assert (found.state, found.proposed_kernel) == (BirthState.DUPLICATE, None)
    assert (evaluator.asked.total(), searching.population.totals.renamed) == (1, 0)


def test_an_author_learns_that_such_a_kernel_is_known() -> None:
    writer = Writer({1: RENAMED, 2: FRESH, 3: FRESH + "# again\n"})
    searched(writer)
    renamed = Kernel.from_source(RENAMED).id
    known = {brief.child: brief.known(renamed) for brief in writer.briefs}
    assert known == {"g1/i0/s0": False, "g2/i0/s0": True, "g3/i0/s0": True}


def test_a_repair_that_only_renames_is_no_repair() -> None:
    renamed = BROKEN.replace("value", "total")
    archive, evaluator, _ = searched(Writer({1: BROKEN}, {1: renamed}), repair_turns=3)
    found = births(archive)
    assert found["g1/i0/s1"].state is BirthState.DUPLICATE
    assert found["g1/i0/s1"].kernel == Kernel.from_source(BROKEN).id
    assert "g1/i0/s2" not in found, "a duplicate had its turns when it was created"
    assert evaluator.asked.total() == 2


# ---- nearly a failure ------------------------------------------------------------------------------------------------


def test_a_child_that_nearly_repeats_a_failure_is_asked_for_once_more() -> None:
    writer = Writer({1: BROKEN, 2: NEARLY, 3: NEARLY.replace("= 3", "= 4")}, {1: BROKEN, 2: FRESH, 3: NEARLY})
    archive, evaluator, searching = searched(writer)
    found, failed = births(archive), Kernel.from_source(BROKEN).id
    first, again = found["g2/i0/s0"], found["g2/i0/s1"]
    assert (first.state, first.kernel) == (BirthState.NEAR_DUPLICATE, Kernel.from_source(NEARLY).id)
    assert "% of its text with " + failed + ", which was wrong: as reported" in first.note
    assert (again.operator, again.state) == (Operator.REPAIR, BirthState.CREATED)
    assert again.parents == (first.kernel, *first.parents)
    assert again.kernel == Kernel.from_source(FRESH).id
    (brief,) = [one for one in writer.briefs if one.child == "g2/i0/s1"]
    assert brief.repair is not None
    assert brief.repair.like is not None
    assert (brief.repair.like.kernel, brief.repair.like.evaluation.verdict) == (failed, Verdict.WRONG)
    assert searching.population.totals.states[BirthState.NEAR_DUPLICATE] == 2
    # The writer insisted on what was not judged before: it is judged, and not asked for a third time.
    insisted = found["g3/i0/s1"]
    assert (insisted.state, insisted.kernel) == (BirthState.CREATED, first.kernel)
    assert evaluator.asked[first.kernel or ""] == 1
    assert found["g3/i0/s2"].operator is Operator.REPAIR, "it failed, and is repaired as any other"
    run = archive.runs.get()
    counts = throughput_of(run, archive.runs.births(run.id), archive.runs.evaluations(run.id).values())
    assert (counts.near_duplicates, counts.renamed, counts.duplicates) == (2, 0, 2)


def test_being_asked_once_more_is_no_repair_turn() -> None:
    writer = Writer({1: BROKEN, 2: NEARLY}, {1: BROKEN, 2: START.replace("return value", "return broken(x, value)")})
    archive, _, _ = searched(writer)
    assert [name for name in births(archive) if name.startswith("g2")] == ["g2/i0/s0", "g2/i0/s1", "g2/i0/s2"]


def test_who_mends_nothing_asks_for_nothing_once_more() -> None:
    archive, evaluator, _ = searched(Writer({1: BROKEN, 2: NEARLY}), repair_turns=0)
    assert births(archive)["g2/i0/s0"].state is BirthState.CREATED
    assert evaluator.asked.total() == 3


def test_a_small_edit_of_a_good_parent_is_no_repetition_of_its_failed_sibling() -> None:
    """All three share 95 % and more of their text; the child is nearest to its parent."""
    archive, _, _ = searched(Writer({1: BROKEN, 2: START.replace("SCALE = 1", "SCALE = 2")}, {1: BROKEN}))
    assert births(archive)["g2/i0/s0"].state is BirthState.CREATED


def facts(archive: Archive) -> Any:
    run = archive.runs.get()
    return (
        [replace(birth, seconds=0.0) for birth in archive.runs.births(run.id)],
        archive.runs.evaluations(run.id),
        archive.runs.placements(run.id),
    )


def test_a_run_interrupted_anywhere_asks_once_more_once(tmp_path: Path) -> None:
    def writer() -> Writer:
        return Writer(
            {1: BROKEN, 2: NEARLY, 3: RENAMED, 4: NEARLY.replace("= 3", "= 4"), 5: FRESH},
            {1: BROKEN, 2: NEARLY.replace("= 3", "= 5"), 4: FRESH.replace("SCALE = 1", "SCALE = 7")},
        )

    whole, _, _ = searched(writer())
    assert [birth.state for birth in facts(whole)[0]].count(BirthState.NEAR_DUPLICATE) == 2
    interrupted = 0
    for cut in range(6):
        first, second, writers = KnownEvaluator(interrupt_at=cut), KnownEvaluator(), [writer(), writer()]
        with Archive(tmp_path / f"{cut}.db") as archive:
            try:
                make(archive, writers[0], first).run()
            except KeyboardInterrupt:
                interrupted += 1
        with Archive(tmp_path / f"{cut}.db") as archive:
            make(archive, writers[1], second).run()
            assert facts(archive) == facts(whole), f"cut at {cut}"
        assert max((first.asked + second.asked).values()) == 1
        children = [brief.child for writer in writers for brief in writer.briefs]
        assert len(children) == len(set(children)), "a child was asked for twice"
    assert interrupted > 3


def test_the_sentence_names_the_kernel_and_how_it_fared() -> None:
    wrong = Evaluation(
        kernel="3f2a9c0011223344", problem="p", device="d", precision="fp32", verdict=Verdict.WRONG, message="off by 3"
    )
    slow = changed(wrong, verdict=Verdict.CORRECT, message="", speedup=0.31, speedup_low=0.3, speedup_high=0.32)
    for evaluation, words in ((wrong, "which was wrong:"), (slow, "which was much slower than its parent:")):
        like = Likeness(kernel=evaluation.kernel, share=0.974, evaluation=evaluation)
        said = prompts.repair(Failure(kernel=kernel(), evaluation=evaluation, like=like))
        assert "That file was not run. It shares 97 % of its text with a kernel of this run, 3f2a9c0011223344" in said
        assert words in said
        assert ("off by 3" in said) == (evaluation is wrong)
        assert ("0.31 times as fast as eager" in said) == (evaluation is slow)
        assert "does not work" not in said


# ---- what is remembered ----------------------------------------------------------------------------------------------


def judged(kernel_id: str, verdict: Verdict = Verdict.CORRECT, speedup: float = 1.0) -> Evaluation:
    found = Evaluation(kernel=kernel_id, problem="p", device="d", precision="fp32", verdict=verdict)
    return changed(found, speedup=speedup, speedup_low=0.98 * speedup, speedup_high=1.02 * speedup)


@pytest.mark.parametrize(
    ("found", "parent", "is_known_failure"),
    [
        (judged("k", Verdict.WRONG), None, True),
        (judged("k", Verdict.TIMED_OUT), judged("p"), True),
        (judged("k", speedup=0.6), judged("p"), True),
        (judged("k", speedup=0.69), judged("p"), False),
        (judged("k", speedup=1.3), judged("p"), False),
        (judged("k", speedup=0.01), None, False),
    ],
)
def test_failures_and_what_is_clearly_slower_than_its_parent(
    found: Evaluation, parent: Evaluation | None, is_known_failure: bool
) -> None:
    birth = Birth(
        run="r", generation=1, island=0, slot=0, operator=Operator.MUTATE, state=BirthState.CREATED, kernel="k"
    )
    known = known_failures((), birth, found, parent)
    repeated = replace(birth, state=BirthState.DUPLICATE, kernel="d")
    known = known_failures(known, repeated, judged("d", Verdict.WRONG), None)
    assert known == (("k",) if is_known_failure else ())
    for number in range(2 * REMEMBERED):
        failed = judged(f"k{number}", Verdict.WRONG)
        known = known_failures(known, replace(birth, kernel=f"k{number}"), failed, None)
    assert known == tuple(f"k{number}" for number in range(REMEMBERED, 2 * REMEMBERED))
