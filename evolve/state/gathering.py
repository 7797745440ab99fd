"""How what a run is given of other problems is gathered from its archive.

It is gathered once, when the run begins, and written down: whatever the archive learns later, a resumed run goes on
with what it was given. A run with the seed of an earlier run of its problem is given what that one was given: the same
seed is the same run. Runs of the same problem give nothing to each other, so that they can be compared; --start does
that.
"""

import json

from kbevolve.archive.records import Backend, ProblemCard, Run
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import Problem
from kbevolve.evolve.state.bottlenecks import bottleneck_class
from kbevolve.evolve.state.replay import carried_out
from kbevolve.evolve.state.transfer import Heirloom, Legacy, Paid
from kbevolve.islands.credit.tally import Tally
from kbevolve.islands.credit.techniques import Key

#: Runs that are looked at, the newest; kernels and ideas that are kept.
RUNS, KERNELS, IDEAS = 50, 3, 6
#: Share of the operations of two problems that they must have in common to be called similar.
ALIKE = 0.5
#: Gain (a factor) from which an idea is worth telling elsewhere.
WORTH_TELLING = 1.05


def legacy_of(archive: Archive, run: Run, problem: Problem) -> Legacy:
    """What a run is given: as it was written down; or gathered now, and written down."""
    text = archive.transfer(run.id)
    if text is None:
        text = _of_its_like(archive, run)
        # A run that has bred before such things were written down was given nothing.
        if text is None and not archive.ledger(run).last_generation():
            text = as_text(gather(archive, run, problem))
        text = text or as_text(Legacy())
        archive.add_transfer(run.id, text)
    return from_text(text, archive)


def gather(archive: Archive, run: Run, problem: Problem) -> Legacy:
    """What earlier runs on other problems, on the same device at the same precision, have to give."""
    precision = precision_of(run)
    card = archive.card(run.problem, run.device, precision)
    tallies: dict[Key, Tally] = {}
    kernels: dict[str, Heirloom] = {}
    ideas: dict[str, Paid] = {}
    for other in archive.runs_elsewhere(run, limit=RUNS):
        if precision_of(other) != precision:
            continue
        theirs = archive.problem(other.problem)
        similar = alike(problem, theirs, card, archive.card(other.problem, other.device, precision))
        for child in carried_out(archive, other):
            idea, gain = child.idea, child.gain
            keys: tuple[Key, ...] = ((idea.technique,), (idea.technique, bottleneck_class(idea.bottleneck)))
            for key in keys:
                tallies[key] = tallies.get(key, Tally()).with_child(gain.log if gain else None)
            if similar and gain is not None and gain.factor >= WORTH_TELLING:
                paid = Paid(problem=theirs.name, title=idea.title, technique=idea.technique, gain=round(gain.factor, 3))
                ideas[idea.title] = max(paid, ideas.get(idea.title, paid), key=lambda one: one.gain)
        if similar and (best := _best(archive, other, theirs)) is not None:
            kernels[other.problem] = max(best, kernels.get(other.problem, best), key=lambda one: one.speedup)
    return Legacy(
        tallies=tallies,
        kernels=tuple(sorted(kernels.values(), key=lambda one: (-one.speedup, one.kernel))[:KERNELS]),
        ideas=tuple(sorted(ideas.values(), key=lambda one: (-one.gain, one.title))[:IDEAS]),
    )


def as_text(legacy: Legacy) -> str:
    """A legacy as JSON; of kernels their ids, for their sources are in the archive."""
    tallies = [[list(key), [one.valid, one.invalid, one.gains, one.squares]] for key, one in legacy.tallies.items()]
    kernels = [[one.problem, one.kernel, one.speedup] for one in legacy.kernels]
    ideas = [[one.problem, one.title, one.technique, one.gain] for one in legacy.ideas]
    return json.dumps({"tallies": tallies, "kernels": kernels, "ideas": ideas})


def from_text(text: str, archive: Archive) -> Legacy:
    """The legacy that `as_text` wrote."""
    tree = json.loads(text)
    tallies = {
        tuple(key): Tally(valid=valid, invalid=invalid, gains=gains, squares=squares)
        for key, (valid, invalid, gains, squares) in tree["tallies"]
    }
    kernels = tuple(
        Heirloom(problem=problem, kernel=kernel, speedup=speedup, source=archive.kernel(kernel).source)
        for problem, kernel, speedup in tree["kernels"]
    )
    ideas = tuple(
        Paid(problem=problem, title=title, technique=technique, gain=gain)
        for problem, title, technique, gain in tree["ideas"]
    )
    return Legacy(tallies=tallies, kernels=kernels, ideas=ideas)


def alike(one: Problem, other: Problem, card: ProblemCard | None = None, others: ProblemCard | None = None) -> bool:
    """Whether two problems do mostly the same operations and, where both cards are known, are bound by the same."""
    playbook = load_playbook()
    mine, theirs = (frozenset(playbook.operations_in(problem.source)) for problem in (one, other))
    if not mine | theirs or len(mine & theirs) / len(mine | theirs) < ALIKE:
        return False
    return card is None or others is None or card.bound_by == others.bound_by


def _of_its_like(archive: Archive, run: Run) -> str | None:
    """What the first run of the same problem with the same seed was given."""
    for other in archive.runs_like(run):
        same = other.id != run.id and other.seed == run.seed and precision_of(other) == precision_of(run)
        if same and (text := archive.transfer(other.id)) is not None:
            return text
    return None


def _best(archive: Archive, run: Run, problem: Problem) -> Heirloom | None:
    """The best kernel of a run, when it writes kernels of its own and beats eager."""
    summary = archive.summary(run)
    if summary.best_kernel is None or (summary.best_speedup or 0.0) <= 1.0:
        return None
    kernel = archive.kernel(summary.best_kernel)
    if kernel.backend is Backend.TORCH:
        return None
    speedup = round(summary.best_speedup or 0.0, 3)
    return Heirloom(problem=problem.name, kernel=kernel.id, speedup=speedup, source=kernel.source)
