"""What a run of the archive has learnt, rebuilt from its attempts and verdicts."""

from collections.abc import Iterator
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Evaluation, Idea, Operator, Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.state.knowledge import Gain, Memory
from kbevolve.evolve.state.learner import Learner
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Key


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
    ideas = archive.runs.ideas(run.id)
    if not ideas:
        return
    found = archive.runs.evaluations(run.id)
    for birth in archive.runs.births(run.id, texts=False):
        if birth.idea is not None and birth.operator is not Operator.SEED:
            evaluation = found.get(birth.kernel) if birth.kernel else None
            gain = Gain.of(evaluation, _parent(birth, found))
            yield CarriedOut(birth=birth, idea=ideas[birth.idea], evaluation=evaluation, gain=gain)


def memory_of(archive: Archive, run: Run, elsewhere: dict[Key, Tally] | None = None) -> Memory:
    """What a run knows by now; how far it stagnates is left out."""
    learning, ideas, found = Learner(elsewhere), archive.runs.ideas(run.id), archive.runs.evaluations(run.id)
    for birth in archive.runs.births(run.id, texts=False):
        if birth.operator is not Operator.SEED and (birth.parents or birth.kernel):
            idea = ideas[birth.idea] if birth.idea is not None else None
            evaluation = found.get(birth.kernel) if birth.kernel else None
            learning.observe(birth, idea, evaluation, _parent(birth, found))
    return learning.memory(judged=len(found))


def _parent(birth: Birth, found: dict[str, Evaluation]) -> Evaluation | None:
    """The evaluation of the first correct parent."""
    parents = (found.get(parent) for parent in birth.parents)
    return next((one for one in parents if one is not None and one.verdict is Verdict.CORRECT), None)
