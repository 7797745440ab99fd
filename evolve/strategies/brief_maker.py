"""The loop's view of a strategy: it makes briefs, whoever decided them."""

from collections.abc import Callable
from random import Random

from kbevolve.archive.records import Operator
from kbevolve.archive.run_view import RunView
from kbevolve.configs.settings import SearchSettings
from kbevolve.evolve.proposers.base import Brief, Learnt
from kbevolve.evolve.state.population import Population
from kbevolve.evolve.strategies.base import Choice, Strategy, Turn
from kbevolve.evolve.strategies.evolve import Breeding
from kbevolve.evolve.strategies.view import Knowledge


class Directed:
    """Implements `Breeder`: a strategy chooses, and all that briefs have in common is as the default strategy has it.

    Args:
        strategy: who chooses.
        breeding: the run's problem, device and proposers.
        settings: of the search.
        ledger: what the archive holds of the run.
        closed: tells the newest generation that is closed.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        breeding: Breeding,
        settings: SearchSettings,
        ledger: RunView,
        closed: Callable[[], int],
    ) -> None:
        self._strategy = strategy
        self._breeding = breeding
        self._settings = settings
        self._ledger = ledger
        self._closed = closed
        self._operators: frozenset[Operator] = frozenset(breeding.proposers)

    def brief(
        self, population: Population, *, generation: int, island: int, known: Callable[[str], bool]
    ) -> Brief | None:
        """See `Breeder`."""
        knowledge = Knowledge(population, self._ledger, island=island, closed=self._closed())
        turn = Turn(
            generation=generation,
            island=island,
            islands=self._settings.islands,
            operators=self._operators,
            lookahead=self._settings.lookahead,
        )
        choice = self._strategy.choose(knowledge, turn, self._rng(generation, island, "choose"))
        if choice is None:
            return None
        return self._brief(population, knowledge, choice, known, self._rng(generation, island, "propose"))

    def _brief(
        self,
        population: Population,
        knowledge: Knowledge,
        choice: Choice,
        known: Callable[[str], bool],
        rng: Random,
    ) -> Brief:
        return Brief(
            task=self._breeding.task,
            operator=choice.operator,
            parents=choice.parents,
            repair=choice.repair,
            idea=choice.idea,
            learnt=Learnt(
                tried=population.tried() if choice.learnt else {},
                failures=choice.failures,
                history=population.history() if choice.learnt else (),
                attempts=knowledge.since,
            ),
            feedback=choice.told,
            known=known,
            rng=rng,
        )

    def _rng(self, generation: int, island: int, purpose: str) -> Random:
        # With the strategy's name: strategies that are compared do not share their luck, nor their recorded answers.
        settings = self._settings
        return Random(f"{settings.seed}/{settings.strategy}/{island}/{generation}/{purpose}")
