"""The default strategy as a searcher: a run's own choices, on programs instead of kernels.

Operator, parents and inspirations are chosen by `strategies.evolve.choose`, ideas by `state.idea_choice`, from what
`state.memory` made of the children; islands, migration and restarts are those of a run with this limit of
evaluations. What a program lacks is left out: languages, bottlenecks, transferred knowledge. Titles of ideas never
recur, because one technique carried out twice gives two programs here. A new best counts at once, for the simulation
holds no contests before the end. Where a run would stop because it stagnates, this search spends its whole budget.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Backend, Birth, BirthState, Evaluation, Idea, Kernel, Operator, Verdict
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.tuning.proposer import CHANGES, OF_PARENTS
from kbevolve.evolve.proposers.tuning.surrogate import Sample, Surrogate
from kbevolve.evolve.simulation.landscape import Landscape, Program
from kbevolve.evolve.simulation.moves import retuned
from kbevolve.evolve.simulation.searcher import Observation, Setup
from kbevolve.evolve.simulation.simulated_llm import Task
from kbevolve.evolve.state.idea_choice import draw_idea
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.population import SHOWN_FAILURES
from kbevolve.evolve.strategies.evolve import choose
from kbevolve.islands.island import Island, Member, fittest, ranked
from kbevolve.islands.migration import restart, ring
from kbevolve.islands.policy import policy_of
from kbevolve.islands.stagnation import Stage, stage_of, window

OPERATORS = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.TUNE)
#: Islands differ as on a GPU: of one or two none prefers any techniques.
DEVICE_TYPE = "cuda"
#: How many of the best are measured again in the end, and the budget from which some are.
FINALISTS = 5
VERIFIED_FROM = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    """What a search knew when a generation had closed."""

    islands: Sequence[Island]
    memory: Memory
    #: Of each island, signatures of its newest failures.
    warnings: Sequence[frozenset[str]]
    #: The best program, if that generation created it.
    champion: Member | None


class OurSearcher:
    """Implements `Searcher`. Generation g knows the results up to generation g - 1 - `lookahead`."""

    def __init__(self, setup: Setup, *, lookahead: int = 0, islands: int | None = None) -> None:
        self._setup = setup
        search = {} if islands is None else {"islands": islands}
        self._settings = Settings.from_tree({"budget": {"evaluations": setup.budget}, "search": search}).search
        self._window = window(setup.budget, self._settings.patience)
        #: What was learnt by now, what was known when generations closed, and what this generation may know of it.
        self._learnt, self._memory = Memory(), Memory()
        self._closed: deque[_Closed] = deque(maxlen=lookahead + 1)
        self._islands = [Island(index=index) for index in range(self._settings.islands)]
        self._warnings = [deque[str](maxlen=SHOWN_FAILURES) for _ in self._islands]
        self._seen: dict[str, Observation] = {}
        self._children: Counter[str] = Counter()
        self._peak = 0.0
        self._champion: Member | None = None
        #: Programs that were judged, and how many of them when an island last began anew.
        self._judged, self._restarted = 0, -1
        #: Log speedup of each program; None for a failure.
        self._scores: dict[Program, float | None] = {}
        #: Of the newest child: generation (0 for the starts), island, number of its repair, operator, parents, idea.
        self._generation, self._island, self._slot = 0, len(self._islands) - 1, 0
        self._operator = Operator.MUTATE
        self._parents: tuple[Member, ...] = ()
        self._idea: Idea | None = None

    @property
    def island(self) -> int:
        """The island of the newest child."""
        return self._island

    def task(self, spent: int) -> Task:
        """The next island's child, by what was known when its generation was begun."""
        self._island = (self._island + 1) % len(self._islands)
        if self._island == 0:
            self._begin_generation()
        rng = partial(self._setup.rng, self._island, self._generation)
        choice = choose(
            self._closed[0].islands[self._island],
            self._memory,
            settings=self._settings,
            window=self._window,
            operators=OPERATORS,
            rng=rng,
            tunable=lambda member: True,
            champion=self._closed[0].champion,
        )
        assert choice is not None, "every landscape has a valid start, and every program can be rewritten"
        self._slot, self._operator, self._parents = 0, choice.operator, choice.parents
        parents = tuple(self._program(member) for member in choice.parents)
        carried_out = choice.operator in (Operator.MUTATE, Operator.REWRITE)
        self._idea = self._choose_idea(parents[0]) if carried_out else None
        return Task(
            operator=choice.operator,
            parents=parents,
            idea=self._idea,
            child=tuned(self._setup.landscape, parents[0], self._scores, rng("tune"))
            if choice.operator is Operator.TUNE
            else None,
            inspirations=tuple(self._program(member) for member in choice.inspirations),
            warnings=self._closed[0].warnings[self._island],
        )

    def observe(self, found: Observation) -> None:
        """Learn from a child; a valid one arrives on its island, a start on each."""
        member = self._member(found)
        if not found.duplicate:
            self._judged += 1
            self._scores[found.program] = found.score
            self._peak = max(self._peak, member.shown)
        if found.task is not None:
            self._learn(member, duplicate=found.duplicate)
        if found.failure is not None:
            self._warnings[self._island].append(found.failure.signature)
        else:
            for island in self._islands if found.task is None else self._islands[self._island : self._island + 1]:
                self._islands[island.index] = island.with_member(member)

    def reserve(self) -> int:
        """The last look at the finalists."""
        return FINALISTS if self._setup.budget >= VERIFIED_FROM else 0

    def publish(self) -> tuple[Program, float]:
        """The finalist that was best when measured afresh; only that number is published."""
        everyone = {member.kernel.id: member for island in self._islands for member in island.members}
        first = [self._seen[member.kernel.id] for member in ranked(everyone.values())]
        pairs = [(one, self._setup.again(one.program)) for one in first[: self.reserve()]]
        fresh = [(one, again) for one, again in pairs if again is not None and again.score is not None]
        if not fresh:
            return first[0].program, first[0].low
        # Both looks decide who is best; only the fresh one is published: it was not chosen for its luck.
        best, again = max(fresh, key=lambda pair: (pair[0].score or 0.0) + (pair[1].score or 0.0))
        return best.program, again.score or 0.0

    def _begin_generation(self) -> None:
        """Close the generation before, in the order in which a run does it; then note what the next one is begun on."""
        every = self._settings.migration_every
        if self._generation and every and self._generation % every == 0:
            for migrant in ring(self._islands):
                self._islands[migrant.target] = self._islands[migrant.target].with_member(migrant.member)
        self._learnt = replace(self._learnt, judged=self._judged).improved(self._peak)
        champion = fittest(self._islands)
        is_new, self._champion = self._champion not in (None, champion), champion
        due = self._restarted < self._learnt.marked
        if (
            due
            and stage_of(self._learnt.stalled, self._window) is Stage.BACKTRACKING
            and (new := restart(self._islands))
        ):
            self._islands[new.target] = Island(index=new.target).with_member(new.member)
            self._restarted = self._judged
        self._closed.append(
            _Closed(
                islands=[island.with_children(self._children) for island in self._islands],
                memory=self._learnt,
                warnings=[frozenset(signatures) for signatures in self._warnings],
                champion=champion if is_new else None,
            )
        )
        self._memory = self._closed[0].memory
        self._generation += 1

    def _learn(self, member: Member, *, duplicate: bool) -> None:
        parents = tuple(parent.kernel.id for parent in self._parents)
        birth = Birth(
            run="",
            generation=self._generation,
            island=self._island,
            slot=self._slot,
            operator=Operator.REPAIR if self._slot else self._operator,
            state=BirthState.DUPLICATE if duplicate else BirthState.CREATED,
            parents=parents,
            kernel=member.kernel.id,
        )
        self._learnt = self._learnt.after(birth, self._idea, member.evaluation, self._parents[0].evaluation)
        if self._slot == 0:
            self._children[parents[0]] += 1
        self._slot += 1

    def _choose_idea(self, program: Program) -> Idea:
        rng = self._setup.rng(self._island, self._generation, "propose")
        chosen = draw_idea(
            self._setup.llm.ideas(self._setup.landscape, program, rng),
            self._memory,
            rng,
            island=self._island,
            policy=policy_of(self._island, islands=len(self._islands), device_type=DEVICE_TYPE),
            stage=stage_of(self._memory.stalled, self._window),
        )
        return replace(chosen, title=f"{chosen.technique}, g{self._generation}/i{self._island}")

    def _program(self, member: Member) -> Program:
        return self._seen[member.kernel.id].program

    def _member(self, found: Observation) -> Member:
        """A program as the islands see a kernel."""
        name = f"{found.program} {found.failure.signature if found.failure else ''}".strip()
        self._seen.setdefault(name, found)
        score = found.score
        evaluation = grouped(
            Evaluation,
            kernel=name,
            problem="",
            device="",
            precision="fp32",
            verdict=found.failure.verdict if found.failure else Verdict.CORRECT,
            message=found.failure.signature if found.failure else "",
            speedup=None if score is None else math.exp(score),
            speedup_low=None if score is None else math.exp(found.low),
            speedup_high=None if score is None else math.exp(score + found.margin),
        )
        niche = "" if found.failure else self._setup.landscape.niche(found.program)
        return Member(kernel=Kernel(id=name, backend=Backend.TRITON, source=name), evaluation=evaluation, niche=niche)


def tuned(landscape: Landscape, parent: Program, scores: Mapping[Program, float | None], rng: Random) -> Program | None:
    """A program that differs from its parent in values of parameters only; None when all that were drawn are known.

    As in `proposers.tuning.proposer`, what was learnt of every value chooses.

    Args:
        landscape: where.
        parent: whose techniques it has.
        scores: all programs that were tried, with their log speedups; None for failures.
        rng: the only source of randomness.
    """
    near = {retuned(landscape, parent, rng.choice(CHANGES), rng) for _ in range(OF_PARENTS)}
    fresh = sorted(near - scores.keys() - {parent})
    if not fresh:
        return None
    rungs = [at for at, gene in enumerate(landscape.genes) if gene.rung]
    parameters = [(at, gene.name) for at, gene in enumerate(landscape.genes) if not gene.rung]

    def values(program: Program) -> dict[str, str]:
        return {name: str(program[at]) for at, name in parameters}

    samples = [
        Sample(setting=values(program), speedup=math.exp(score))
        for program, score in scores.items()
        if score is not None and all(program[at] == parent[at] for at in rungs)
    ]
    rng.shuffle(fresh)  # of equal scores any
    choices = {gene.name: [str(choice) for choice in range(gene.choices)] for gene in landscape.genes if not gene.rung}
    ranks = Surrogate(choices, samples).scores([values(program) for program in fresh])
    return fresh[int(ranks.argmax())]
