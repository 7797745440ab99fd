"""A real run on the children of a simulated search: in the same state, with the same generators, both choose alike."""

from dataclasses import dataclass, replace
from hashlib import sha256

import pytest

from kbevolve.archive.records import BirthState, Evaluation, Kernel, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.simulation.ladders import find_ladder
from kbevolve.evolve.simulation.searcher import Observation, Setup, run_episode
from kbevolve.evolve.simulation.searchers import ours
from kbevolve.evolve.simulation.searchers.ours import OPERATORS, OurSearcher
from kbevolve.evolve.simulation.simulated_llm import SimulatedLLM, Task
from kbevolve.evolve.state import population
from kbevolve.islands.island import Member
from kbevolve.islands.stagnation import Stage
from tests.evolve.doubles import DEVICE, KnownEvaluator, ScriptedProposer, open_run, search


@dataclass(kw_only=True)
class Chosen:
    """One child of the simulated search: what it was made from, and what it became."""

    task: Task
    parents: tuple[Member, ...]
    idea: str
    child: Member | None = None


class Watched(OurSearcher):
    """Keeps its choices and children."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.starts: list[Member] = []
        self.chosen: dict[tuple[int, int], Chosen] = {}

    def task(self, spent: int) -> Task:
        task = super().task(spent)
        idea = self._idea.technique if self._idea else ""
        self.chosen[self._generation, self._island] = Chosen(task=task, parents=self._parents, idea=idea)
        return task

    def observe(self, found: Observation) -> None:
        super().observe(found)
        if found.task is None:
            self.starts.append(self._member(found))
        else:
            self.chosen[self._generation, self._island].child = self._member(found)


def as_kernel(member: Member) -> Kernel:
    text = sha256(member.kernel.id.encode()).hexdigest()
    return Kernel.from_source(f"TILE = 1  # tune: 1, 2\n\n\nclass ModelNew: x{text} = {len(member.kernel.id)}\n")


@pytest.mark.parametrize(
    ("budget", "seed", "credit"),
    [(90, 1, "shares"), (160, 2, "shares"), (60, 3, "credit"), pytest.param(399, 4, "shares", marks=pytest.mark.slow)],
)
def test_a_run_and_its_simulation_choose_alike(
    budget: int, seed: int, credit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Settings.from_tree(
        {
            "budget": {"evaluations": budget},
            "search": {"seed": seed, "repair_turns": 0, "operator_choice": credit},
        }
    )
    monkeypatch.setattr(ours, "DEVICE_TYPE", "cpu")  # as the run below; its islands prefer techniques of their own
    watched: list[Watched] = []

    def make(setup: Setup) -> Watched:
        watched.append(Watched(setup))
        watched[0]._settings = chosen.search
        return watched[0]

    ladder, llm = find_ladder("ladder-b"), SimulatedLLM(repairs=0.0)
    run_episode(ladder, make, llm=llm, budget=budget, seed=seed)
    simulated = watched[0]
    everyone = [*simulated.starts, *(one.child for one in simulated.chosen.values() if one.child)]
    kernels = {member.kernel.id: as_kernel(member) for member in everyone}
    by_kernel = {kernels[member.kernel.id].id: member for member in everyone}
    # The run names its generators as the simulation does: by them a brief is found again.
    places = {simulated._setup.rng(i, g, "propose").getstate(): (g, i) for g, i in simulated.chosen}
    compared: dict[tuple[int, int], Stage] = {}

    def propose(brief: Brief) -> Proposal:
        place = places.get(brief.rng.getstate())
        if place is None:
            return Proposal(state=BirthState.EXHAUSTED)
        there = simulated.chosen[place]
        assert brief.operator is there.task.operator
        assert [one.kernel for one in brief.parents] == [kernels[one.kernel.id] for one in there.parents]
        seen = [by_kernel[one.kernel.id] for one in brief.inspirations]
        assert [simulated._program(one) for one in seen] == list(there.task.inspirations)
        idea = None
        if there.idea:
            # As the proposer does: stated ideas, then one function for run and simulation, by the brief's own facts.
            again = Watched(simulated._setup)
            again._memory, again._islands = brief.learnt.memory, [None] * chosen.search.islands  # type: ignore[list-item]
            again._island, again._generation = brief.island.number, place[0]
            again._window = simulated._window
            idea = again._choose_idea(there.task.parents[0])
            assert idea.technique == there.idea
        compared[place] = brief.island.stage
        assert there.child is not None
        child = kernels[there.child.kernel.id]
        state = BirthState.DUPLICATE if brief.known(child.id) else BirthState.CREATED
        return Proposal(state=state, kernel=child, idea=idea)

    class Landscape(KnownEvaluator):
        def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
            found = by_kernel[kernel.id].evaluation
            return replace(found, kernel=kernel.id, problem=problem.id, device=DEVICE)

    monkeypatch.setattr(population, "describe", lambda kernel, traits: by_kernel[kernel.id].niche)
    with Archive(":memory:") as archive:
        run = open_run(archive, chosen)
        starts = [kernels[member.kernel.id] for member in simulated.starts]
        writer = ScriptedProposer(propose)
        proposers = dict.fromkeys(OPERATORS, writer)
        search(archive, run, chosen, Landscape(), proposers=proposers, starts=starts).run()
    assert len(compared) > 0.6 * budget, "a run that stagnates stops earlier"
    assert {operator for one in simulated.chosen.values() for operator in (one.task.operator,)} == set(Operator) - {
        Operator.SEED,
        Operator.REPAIR,
    }
