"""How a brief is made: operator, parents, inspirations and failures of one child, from what the run knows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Birth, Idea, Operator, ProblemCard
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.brief import Brief, Failure, Proposer
from kbevolve.evolve.operators import choose_operator, operator_weights
from kbevolve.evolve.population import Population
from kbevolve.evolve.tunables import declared
from kbevolve.islands.island import Member
from kbevolve.islands.selection import RankSelection, Selection, inspirations


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeding:
    """Makes briefs. Every random choice has its own generator, named by seed, island, generation and purpose."""

    problem: Problem
    device_type: str
    device: str
    settings: SearchSettings
    proposers: Mapping[Operator, Proposer]
    #: What the judge found out about the problem; None when nobody looked.
    card: ProblemCard | None = None

    def brief(
        self, population: Population, *, generation: int, island: int, known: Callable[[str], bool]
    ) -> Brief | None:
        """The brief for an island's next child; None when no operator has a parent there."""
        home = population.island(island)
        weights = operator_weights(
            self.proposers.keys(),
            tune_share=self.settings.tune_share,
            progress=generation / max(self.settings.generations, 1),
        )
        parents: tuple[Member, ...] = ()
        operator = Operator.TUNE
        while weights and not parents:
            operator = choose_operator(weights, self._rng(generation, island, f"operator/{len(weights)}"))
            parents = self._selection()(home, self._rng(generation, island, "parents"), self._eligible(operator))
            if operator is Operator.CROSS and len(parents) < 2:
                parents = ()
            del weights[operator]
        if not parents:
            return None
        shown = parents if operator is Operator.CROSS else parents[:1]
        return Brief(
            problem=self.problem,
            device_type=self.device_type,
            device=self.device,
            card=self.card,
            operator=operator,
            parents=shown,
            inspirations=inspirations(home, shown, self._rng(generation, island, "inspirations")),
            failures=population.failures(island),
            tried=population.tried(),
            history=population.history(),
            known=known,
            rng=self._rng(generation, island, "propose"),
        )

    def repair(
        self,
        population: Population,
        birth: Birth,
        failure: Failure,
        *,
        tried: Mapping[Idea, float | None],
        known: Callable[[str], bool],
    ) -> Brief:
        """The brief for mending a child that failed, with what was known when its generation was bred."""
        return Brief(
            problem=self.problem,
            device_type=self.device_type,
            device=self.device,
            card=self.card,
            operator=Operator.REPAIR,
            parents=tuple(population.member(parent) for parent in birth.parents if population.is_correct(parent)),
            repair=failure,
            tried=tried,
            known=known,
            rng=self._rng(birth.generation, birth.island, f"repair/{birth.slot}"),
        )

    def _selection(self) -> Selection:
        return RankSelection(pressure=self.settings.selection_pressure, discount=self.settings.child_discount)

    def _eligible(self, operator: Operator) -> Callable[[Member], bool]:
        """Tuning needs a parent that declares tunables; so does crossing when no model does it."""
        offline = Operator.MUTATE not in self.proposers
        if operator is Operator.TUNE or (operator is Operator.CROSS and offline):
            return lambda member: bool(declared(member.kernel.source))
        return lambda member: True

    def _rng(self, generation: int, island: int, purpose: str) -> Random:
        return Random(f"{self.settings.seed}/{island}/{generation}/{purpose}")
