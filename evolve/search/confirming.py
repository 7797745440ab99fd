"""Holds contests and writes down what came of them before anything rests on it."""

from collections.abc import Callable, Collection, Sequence
from random import Random

from kbevolve.archive.champion import CHALLENGE, FINAL
from kbevolve.archive.records import Confirmation, Evaluation, Kernel, Measurement, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.evaluator import Confirmer
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.statistics import comparison_of, round_log_ratio, rounds_ms, speedup_of
from kbevolve.evolve.search.confirmation import Champions
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Member

#: Milliseconds of the calls of each round.
Rounds = Sequence[Sequence[float]]


class Confirming:
    """The contests of one run.

    Args:
        archive: where they are written, and what a resumed run is read from.
        run: the run's record.
        problem: its problem.
        confirmer: who measures; None for a run without contests.
        settings: how many rounds and finalists.
        reference: id of the kernel that is the reference itself; it never competes.
        announce: told the kernels before each contest, which takes a while.
    """

    def __init__(
        self,
        *,
        archive: Archive,
        run: Run,
        problem: Problem,
        confirmer: Confirmer | None,
        settings: EvaluationSettings,
        reference: str,
        announce: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._archive = archive
        self._ledger = archive.ledger(run)
        self._run = run
        self._problem = problem
        self._confirmer = confirmer if settings.confirm_rounds else None
        self._rounds = settings.confirm_rounds
        self._announce = announce
        self._finalists = settings.finalists
        self._champions = Champions(reference=reference, finalists=settings.finalists)
        #: Kernels that looked better than the champion when they arrived, and whether others may do so by now.
        self._arrived: list[str] = []
        self._others = False
        #: Number of the newest evaluation that was looked at for kernels that did not pass again.
        self._seen = 0

    @property
    def champion(self) -> Confirmation | None:
        """The confirmation that is published now; None while nobody was confirmed to be faster than eager."""
        return self._champions.champion

    def recall(self) -> None:
        """Take up where the archive ends.

        All contests at once: no choice of a parent rests on them, and who is next follows from who was confirmed.
        """
        self._champions.take_note(self._archive.confirmations(self._run.id))
        self._others = True

    def consider(self, evaluation: Evaluation) -> None:
        """Take note of a correct kernel that has arrived; one that has another's verdict leaves it to that one."""
        if self._confirmer is None or (evaluation.speedup_low or 0.0) <= self._champions.published:
            return
        if evaluation.identical_to is None or self._ledger.first_birth(evaluation.identical_to) is None:
            self._arrived.append(evaluation.kernel)

    def challenge(self, population: Population, generation: int) -> None:
        """Let the kernels that look better than the champion challenge it, the fittest first.

        Nothing happens in a generation that had its final: a resumed run may enter that one again.
        """
        self._withdraw_failed(population)
        if self._champions.had_final(generation):
            return
        # Each contest confirms its challenger, or somebody fails in it and is out: the loop ends.
        while self._confirmer and (challenger := self._challenger(population, generation)) is not None:
            self._meet(self._confirmer, (challenger,), population, generation, CHALLENGE)

    def final(self, population: Population, generation: int) -> None:
        """Let the best of the run meet, unless they did already."""
        self._withdraw_failed(population)
        while self._confirmer and not self._champions.had_final(generation):
            # Who may not compete is passed over: as many more are asked for.
            count = self._finalists + self._champions.out
            fittest = self._ledger.contenders(generation=generation, above=-1.0, count=count)
            champion = [self.champion.kernel] if self.champion else []
            members = map(population.member, dict.fromkeys((*champion, *fittest)))
            finalists = self._champions.finalists(members)
            if not finalists:
                return
            self._meet(self._confirmer, finalists, population, generation, FINAL)

    def _challenger(self, population: Population, generation: int) -> Member | None:
        """Who comes next. Every generation has met its challengers when it closes, so only those that arrived since
        can be any, unless the title has fallen: then all of the run are asked for."""
        looked_at = self._arrived
        if self._others:
            published, count = self._champions.published, self._champions.out + 1
            looked_at = self._ledger.contenders(generation=generation, above=published, count=count)
        challenger = self._champions.challenger(map(population.member, looked_at))
        if challenger is None:
            self._others = False
            self._arrived.clear()
        return challenger

    def _withdraw_failed(self, population: Population) -> None:
        # Asked of the archive: an export or another run may have found meanwhile that a kernel does not pass again.
        newest = self._ledger.newest_evaluation()
        self._note((), self._ledger.failed_since(self._seen), population)
        self._seen = newest

    def _note(self, made: Sequence[Confirmation], failed: Collection[str], population: Population) -> None:
        """Take note of what came of a contest. Where the published speedup falls, earlier kernels may challenge it."""
        before = self._champions.published
        self._champions.take_note(made, failed)
        self._others |= self._champions.published < before
        population.withdraw(failed)

    def _meet(
        self,
        confirmer: Confirmer,
        members: Sequence[Member],
        population: Population,
        generation: int,
        purpose: str,
    ) -> None:
        title = self._champions.champion
        champion = title.kernel if title else None
        kernels: dict[str, Kernel] = {member.kernel.id: member.kernel for member in members}
        if champion is not None:
            kernels.setdefault(champion, self._ledger.kernel(champion))
        self._announce(tuple(kernels))
        contest = confirmer.compete(self._problem, list(kernels.values()), rounds=self._rounds)
        if purpose == CHALLENGE and champion in contest.failed:
            made = []  # the title falls to the champion before it, whom the challenger has yet to meet
        else:
            made = confirmations_of(
                contest, run=self._run.id, generation=generation, purpose=purpose, champion=champion
            )
        self._archive.add_contest(made, tuple(contest.failed.values()))
        self._note(made, contest.failed.keys(), population)


def confirmations_of(
    contest: Contest, *, run: str, generation: int, purpose: str, champion: str | None
) -> list[Confirmation]:
    """What a contest says about each kernel that passed.

    Args:
        contest: what was measured.
        run: id of the run.
        generation: the generation after which it was held.
        purpose: "challenge" or "final".
        champion: id of the kernel that held the title. It is the others' rival; where there is none, or it failed in
            this contest, the reference is. In a final it is confirmed itself, against the reference.
    """
    rival = champion if champion in contest.times else None
    competitors = [kernel for kernel in contest.times if purpose == FINAL or kernel != champion]
    confirmations = []
    for kernel in competitors:
        beside = rival if kernel != rival else None
        own, against = contest.times[kernel], contest.reference if beside is None else contest.times[beside]
        ratio, speedup = (
            speedup_of([round_log_ratio(*pair) for pair in zip(slower, own, strict=True)], Random(kernel))
            for slower in (against, contest.reference)
        )
        confirmations.append(
            Confirmation(
                run=run,
                generation=generation,
                purpose=purpose,
                kernel=kernel,
                rival=beside,
                comparison=comparison_of(ratio.low, ratio.high, contest.tie),
                ratio=ratio.estimate,
                ratio_low=ratio.low,
                ratio_high=ratio.high,
                speedup=speedup.estimate,
                speedup_low=speedup.low,
                speedup_high=speedup.high,
                time_ms=rounds_ms(own),
                reference_ms=rounds_ms(contest.reference),
                blocks=_blocks(child=own, reference=contest.reference, **({"rival": against} if beside else {})),
            )
        )
    return confirmations


def _blocks(**roles: Rounds) -> tuple[Measurement, ...]:
    """Round by round, as they were measured."""
    return tuple(
        Measurement(role=role, round=number, times_ms=tuple(calls))
        for number, together in enumerate(zip(*roles.values(), strict=True))
        for role, calls in zip(roles, together, strict=True)
    )
