"""Knowledge that a run receives from runs on other problems: credit of techniques, what authors' claims were worth, the
best of similar problems, and how fast settings of tunables were on problems of similar size.

It is gathered once, when the run begins, and recorded: whatever the archive learns later, a resumed run goes on with
what it received. A run with the seed of an earlier run of its problem receives what that one received: the same seed is
the same run. Runs of one problem transfer nothing to each other, so that they can be compared; --start does that.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field

from kbevolve.archive.records import Backend, ProblemCard, Run, Verdict
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import Problem
from kbevolve.evolve.state.normalise import bottleneck_class
from kbevolve.evolve.state.replay import carried_out
from kbevolve.islands.credit.claims import Calibration
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Key

#: Runs that are read, the newest; kernels and ideas that are transferred.
RUNS, KERNELS, IDEAS = 50, 3, 6
#: Share of the operations of two problems that they must have in common to be called similar.
ALIKE = 0.5
#: Problems of the nearest sizes whose settings of tunables are transferred; how many of a run's kernels are read, the
#: fastest; and how many settings of one skeleton are kept, one half the fastest, the other evenly spaced.
NEAREST, READ, SETTINGS = 6, 96, 16
#: Correlation of the speeds on two problems of one size; octaves of distance in size that halve it; and where a size is
#: not known. These are assumptions.
CLOSENESS, HALVED, UNKNOWN = 0.9, 4.0, 0.5
#: A line that declares a tunable: without these lines, files of one skeleton are equal.
_TUNABLE = re.compile(r"^[^\n]*tune:[^\n]*$", re.MULTILINE)
#: Gain (a factor) from which an idea is worth trying elsewhere.
PAID = 1.05


@dataclass(frozen=True, slots=True)
class TransferredKernel:
    """The best kernel of a similar problem."""

    #: The problem's name, and the kernel's id.
    problem: str
    kernel: str
    #: Over eager PyTorch, there.
    speedup: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class TransferredIdea:
    """An idea that paid on a similar problem."""

    problem: str
    title: str
    technique: str
    #: Its child's speed over its parent's, a factor.
    gain: float


@dataclass(frozen=True, slots=True)
class TransferredSetting:
    """A kernel that declares tunables, and its speed on another problem."""

    problem: str
    kernel: str
    #: Over eager PyTorch, there.
    speedup: float
    #: Correlation of speeds there with speeds here, by the sizes of both problems, 0 to 1.
    closeness: float
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredKnowledge:
    """Everything that a run receives; nothing by default."""

    #: By technique, and by technique and bottleneck (`Experience.elsewhere`).
    tallies: Mapping[Key, Tally] = field(default_factory=dict)
    #: By author of ideas: what its claims were worth (`Memory.claims`).
    claims: Mapping[str, Calibration] = field(default_factory=dict)
    kernels: tuple[TransferredKernel, ...] = ()
    ideas: tuple[TransferredIdea, ...] = ()
    #: The nearest problem's first.
    settings: tuple[TransferredSetting, ...] = ()


def received_by(archive: Archive, run: Run, problem: Problem) -> TransferredKnowledge:
    """What a run receives: as it was recorded; or gathered now, and recorded."""
    text = archive.runs.transfer(run.id)
    if text is None:
        text = _of_its_seed(archive, run)
        # A run that an older version began, which recorded no transfer, received nothing.
        if text is None and not archive.run_view(run).last_generation():
            text = as_text(gather(archive, run, problem))
        text = text or as_text(TransferredKnowledge())
        archive.add_transfer(run.id, text)
    return from_text(text, archive)


def gather(archive: Archive, run: Run, problem: Problem) -> TransferredKnowledge:
    """What earlier runs on other problems, on the same device at the same precision, have learnt."""
    precision = precision_of(run)
    card = archive.problems.card(run.problem, run.device, precision)
    tallies: dict[Key, Tally] = {}
    claims: dict[str, Calibration] = {}
    kernels: dict[str, TransferredKernel] = {}
    ideas: dict[str, TransferredIdea] = {}
    near: dict[str, tuple[float, Run]] = {}
    for other in archive.runs.on_other_problems(run, limit=RUNS):
        if precision_of(other) != precision:
            continue
        theirs = archive.problems.get(other.problem)
        others_card = archive.problems.card(other.problem, other.device, precision)
        similar = alike(problem, theirs, card, others_card)
        near.setdefault(other.problem, (closeness(card, others_card), other))
        for child in carried_out(archive, other):
            idea, gain = child.idea, child.gain
            keys: tuple[Key, ...] = ((idea.technique,), (idea.technique, bottleneck_class(idea.bottleneck)))
            if gain is not None and idea.expected_gain is not None:
                known = claims.get(idea.proposed_by, Calibration())
                claims[idea.proposed_by] = known.after(math.log(idea.expected_gain), gain.log)
            for key in keys:
                tallies[key] = tallies.get(key, Tally()).with_child(gain.log if gain else None)
            if similar and gain is not None and gain.factor >= PAID:
                paid = TransferredIdea(
                    problem=theirs.name, title=idea.title, technique=idea.technique, gain=round(gain.factor, 3)
                )
                ideas[idea.title] = max(paid, ideas.get(idea.title, paid), key=lambda one: one.gain)
        if similar and (best := _best(archive, other, theirs)) is not None:
            kernels[other.problem] = max(best, kernels.get(other.problem, best), key=lambda one: one.speedup)
    return TransferredKnowledge(
        tallies=tallies,
        claims=claims,
        kernels=tuple(sorted(kernels.values(), key=lambda one: (-one.speedup, one.kernel))[:KERNELS]),
        ideas=tuple(sorted(ideas.values(), key=lambda one: (-one.gain, one.title))[:IDEAS]),
        settings=tuple(
            setting
            for close, other in sorted(near.values(), key=lambda one: -one[0])[:NEAREST]
            for setting in _settings(archive, other, close)
        ),
    )


def as_text(knowledge: TransferredKnowledge) -> str:
    """Transferred knowledge as JSON; of kernels their ids, because their sources are in the archive."""
    tallies = [[list(key), list(astuple(tally))] for key, tally in knowledge.tallies.items()]
    kernels = [astuple(one)[:3] for one in knowledge.kernels]
    claims = {author: asdict(one) for author, one in knowledge.claims.items()}
    ideas = [astuple(one) for one in knowledge.ideas]
    settings = [astuple(one)[:4] for one in knowledge.settings]
    return json.dumps({"tallies": tallies, "claims": claims, "kernels": kernels, "ideas": ideas, "settings": settings})


def from_text(text: str, archive: Archive) -> TransferredKnowledge:
    """The transferred knowledge that `as_text` wrote."""
    tree = json.loads(text)
    return TransferredKnowledge(
        tallies={
            tuple(key): Tally(valid=valid, invalid=invalid, gains=gains, squares=squares)
            for key, (valid, invalid, gains, squares) in tree["tallies"]
        },
        claims={author: Calibration(**facts) for author, facts in tree.get("claims", {}).items()},
        kernels=tuple(
            TransferredKernel(problem, kernel, speedup, archive.kernels.get(kernel).source)
            for problem, kernel, speedup in tree["kernels"]
        ),
        ideas=tuple(TransferredIdea(*one) for one in tree["ideas"]),
        settings=tuple(
            TransferredSetting(problem, kernel, speedup, close, archive.kernels.get(kernel).source)
            for problem, kernel, speedup, close in tree.get("settings", ())
        ),
    )


def alike(one: Problem, other: Problem, card: ProblemCard | None = None, others: ProblemCard | None = None) -> bool:
    """Whether two problems do mostly the same operations and, where both cards are known, are bound by the same."""
    playbook = load_playbook()
    mine, theirs = (frozenset(playbook.operations_in(problem.source)) for problem in (one, other))
    if not mine | theirs or len(mine & theirs) / len(mine | theirs) < ALIKE:
        return False
    return card is None or others is None or card.bound_by == others.bound_by


def closeness(one: ProblemCard | None, other: ProblemCard | None) -> float:
    """How much speeds on two problems have in common, by their operations and bytes in octaves."""
    if one is None or other is None:
        return UNKNOWN
    mine, theirs = (
        [math.log2(1 + size) for size in (card.flops, card.input_bytes + card.weight_bytes, card.output_bytes)]
        for card in (one, other)
    )
    return float(round(CLOSENESS * 0.5 ** (math.dist(mine, theirs) / HALVED), 3))


def _settings(archive: Archive, run: Run, close: float) -> Iterator[TransferredSetting]:
    """Kernels of a run that declare tunables, some of each skeleton, the fastest first."""
    found = archive.runs.evaluations(run.id)
    speeds = {
        kernel: one.timing.speedup
        for kernel, one in found.items()
        if one.verdict is Verdict.CORRECT and one.timing.speedup
    }
    skeletons: dict[str, list[TransferredSetting]] = {}
    for kernel in sorted(speeds, key=lambda kernel: (-speeds[kernel], kernel))[:READ]:
        source = archive.kernels.get(kernel).source
        if _TUNABLE.search(source):
            setting = TransferredSetting(run.problem_name, kernel, round(speeds[kernel], 3), close, source)
            skeletons.setdefault(_TUNABLE.sub("", source), []).append(setting)
    for settings in skeletons.values():
        fastest, others = settings[: SETTINGS // 2], settings[SETTINGS // 2 :]
        step = max(1, math.ceil(len(others) / (SETTINGS - len(fastest))))
        yield from (*fastest, *others[::step])


def _of_its_seed(archive: Archive, run: Run) -> str | None:
    """What the first run of the same problem with the same seed received."""
    for other in archive.runs.like(run):
        same = other.id != run.id and other.seed == run.seed and precision_of(other) == precision_of(run)
        if same and (text := archive.runs.transfer(other.id)) is not None:
            return text
    return None


def _best(archive: Archive, run: Run, problem: Problem) -> TransferredKernel | None:
    """The best kernel of a run, when it writes kernels of its own and beats eager."""
    summary = archive.runs.summary(run)
    if summary.best_kernel is None or (summary.best_speedup or 0.0) <= 1.0:
        return None
    kernel = archive.kernels.get(summary.best_kernel)
    if kernel.backend is Backend.TORCH:
        return None
    speedup = round(summary.best_speedup or 0.0, 3)
    return TransferredKernel(problem=problem.name, kernel=kernel.id, speedup=speedup, source=kernel.source)
