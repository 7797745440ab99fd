"""What a run of the archive has learnt, rebuilt from its attempts and verdicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Idea, Run
from kbevolve.archive.store import Archive
from kbevolve.evolve.state.attempts import first_correct, teaches
from kbevolve.evolve.state.knowledge import Gain
from kbevolve.evolve.state.memory import Memory
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Experience, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """One attempt that carried out an idea."""

    birth: Birth
    idea: Idea
    #: None when it has no kernel.
    evaluation: Evaluation | None
    #: Over its first correct parent; None when it is not correct.
    gain: Gain | None


def carried_out(archive: Archive, run: Run) -> Iterator[CarriedOut]:
    """Every attempt of a run that carried out an idea, in order."""
    if archive.runs.ideas(run.id):
        for birth, idea, evaluation, parent in _attempts(archive, run):
            if idea is not None:
                yield CarriedOut(birth=birth, idea=idea, evaluation=evaluation, gain=Gain.of(evaluation, parent))


def memory_of(archive: Archive, run: Run, elsewhere: Mapping[Key, Tally]) -> Memory:
    """What a run knows by now; how far it stagnates is left out."""
    memory = Memory(experience=Experience(elsewhere=elsewhere))
    for attempt in _attempts(archive, run):
        memory = memory.after(*attempt)
    return memory


def _attempts(archive: Archive, run: Run) -> Iterator[tuple[Birth, Idea | None, Evaluation | None, Evaluation | None]]:
    """Every attempt but the starting kernels, its idea, its evaluation, and that of its first correct parent."""
    ideas, found = archive.runs.ideas(run.id), archive.runs.evaluations(run.id)
    for birth in archive.runs.births(run.id, texts=False):
        if teaches(birth):
            parent = first_correct(found[parent] for parent in birth.parents if parent in found)
            yield birth, ideas.get(birth.idea or ""), found.get(birth.kernel or ""), parent
