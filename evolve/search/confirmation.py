"""Contests: the best kernels of a run are measured again, against each other, and only that is published.

The best of many evaluations is partly luck: with n kernels of equal speed and noise sigma, the luckiest looks about
sigma * sqrt(2 ln n) faster than it is. So a kernel that looks better than the champion challenges it, in fresh
processes and paired rounds. Each result is in the archive before anything depends on it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random

from kbevolve.archive.champion import CHALLENGE, FINAL, champion_of
from kbevolve.archive.records import Confirmation, Evaluation, Kernel, Measurement
from kbevolve.evaluators.evaluator import Confirmer
from kbevolve.evaluators.timing.contest import Contest
from kbevolve.evaluators.timing.statistics import comparison_of, round_log_ratio, rounds_ms, speedup_of
from kbevolve.evolve.search.deadline import Deadline
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.population import Population
from kbevolve.islands.island import Member
from kbevolve.islands.stagnation import ACCEPTED

#: Milliseconds of the calls of each round.
Rounds = Sequence[Sequence[float]]


class Champions:
    """Which kernels may challenge the champion of a run, and which meet in the final.

    Args:
        reference: id of the kernel that is the reference itself. All are measured against it; it never competes.
        finalists: how many kernels meet in the final.
        target: the published speedup at which the run stops; None without one.
    """

    def __init__(self, *, reference: str, finalists: int, target: float | None = None) -> None:
        self._reference = reference
        self._finalists = finalists
        self._target = target
        self._confirmations: list[Confirmation] = []
        self._failed: frozenset[str] = frozenset()

    @property
    def champion(self) -> Confirmation | None:
        """The published confirmation; None while no kernel is confirmed to be faster than eager."""
        return champion_of(self._confirmations, self._failed)

    def champion_at(self, generation: int) -> Confirmation | None:
        """The champion when a generation had closed."""
        return champion_of([one for one in self._confirmations if one.generation <= generation], self._failed)

    @property
    def published(self) -> float:
        """The speedup to beat: the champion's, at first that of eager itself."""
        champion = self.champion
        return champion.speedup if champion else 1.0

    @property
    def required(self) -> float:
        """What a challenger's lower bound must exceed: a smaller step would be no improvement of the run, and a contest
        costs as much as several evaluations. The target is always worth one."""
        if self.champion is None:
            return self.published
        required, target = self.published * ACCEPTED, self._target
        return required if target is None or target <= self.published else min(required, target)

    @property
    def excluded(self) -> int:
        """How many kernels may not challenge, at most: the confirmed, the failed, and the reference."""
        return len(self._confirmations) + len(self._failed) + 1

    def record(self, confirmations: Sequence[Confirmation], failed: Collection[str] = ()) -> None:
        """Add confirmations in their order, and kernels that failed when they were judged again."""
        self._confirmations += confirmations
        self._failed |= frozenset(failed)

    def challenger(self, members: Iterable[Member]) -> Member | None:
        """The kernel with the highest lower bound, if that is above the required speedup; else None.

        A kernel that this run has confirmed, won or lost, does not challenge again: its evaluation is the same.
        """
        required = self.required
        confirmed = {one.kernel for one in self._confirmations}
        fresh = [member for member in self._eligible(members) if member.kernel.id not in confirmed]
        return next((member for member in fresh if member.shown > required), None)

    def finalists(self, members: Iterable[Member]) -> tuple[Member, ...]:
        """The champion, then the kernels with the highest lower bounds; empty when there is nothing to decide."""
        champion = self.champion
        ranked = self._eligible(members)
        title = [member for member in ranked if champion is not None and member.kernel.id == champion.kernel]
        others = [member for member in ranked if member not in title]
        invited = (*title, *others)[: self._finalists]
        return () if invited == tuple(title) else invited  # alone, and confirmed already

    def had_final(self, generation: int) -> bool:
        """Whether the final of this generation is over."""
        return any(one.purpose == FINAL and one.generation == generation for one in self._confirmations)

    def _eligible(self, members: Iterable[Member]) -> list[Member]:
        """The highest lower bound first; ties in the order of kernel ids, so that replays agree."""
        barred = self._failed | {self._reference}
        eligible = [member for member in members if member.kernel.id not in barred]
        return sorted(eligible, key=lambda member: (-member.shown, member.kernel.id))


class Contests:
    """The contests of one run.

    Args:
        context: the run.
        population: its kernels; those that fail in a contest are withdrawn from it.
        confirmer: measures; None for a run without contests.
        deadline: when no contest may begin any more.
        announce: called with the ids of the kernels before each contest, which takes a while.
    """

    def __init__(
        self,
        context: RunContext,
        population: Population,
        confirmer: Confirmer | None,
        deadline: Deadline,
        announce: Callable[[tuple[str, ...]], None],
    ) -> None:
        settings = context.settings.evaluation
        self._context = context
        self._view = context.view
        self._population = population
        self._confirmer = confirmer if settings.confirm_rounds else None
        self._deadline = deadline
        self._announce = announce
        self._finalists = settings.finalists
        target = context.settings.budget.target_speedup
        self.champions = Champions(reference=context.reference, finalists=settings.finalists, target=target)
        #: New kernels that looked better than the champion, and whether older ones may do so now.
        self._arrived: list[str] = []
        self._others = False
        #: Number of the newest evaluation that was searched for kernels that failed when they were judged again.
        self._seen = 0

    @property
    def held(self) -> bool:
        """Whether the run has contests; without them it publishes first evaluations."""
        return self._confirmer is not None

    def recall(self) -> None:
        """Read the contests of earlier sessions, all at once: no choice of a parent depends on them."""
        runs, run = self._context.archive.runs, self._context.run.id
        self.champions.record(runs.confirmations(run), runs.failed(run))
        self._others = True

    def consider(self, evaluation: Evaluation) -> None:
        """Look at a new correct kernel. One with another kernel's verdict leaves the challenge to that one."""
        if not self.held or (evaluation.timing.speedup_low or 0.0) <= self.champions.required:
            return
        if evaluation.compiled.identical_to is None or self._view.first_birth(evaluation.compiled.identical_to) is None:
            self._arrived.append(evaluation.kernel)

    def challenge(self, generation: int) -> None:
        """Let every kernel that looks better than the champion challenge it, the best first.

        Does nothing in a generation that had its final: a resumed run may enter that one again.

        Raises:
            Unanswered: the time of the run is over, and a kernel has yet to challenge.
        """
        self._withdraw_failed()
        if self.champions.had_final(generation):
            return
        # Each contest confirms its challenger or excludes a kernel that failed, so the loop ends.
        while self._confirmer and (challenger := self._challenger(generation)) is not None:
            self._deadline.check()
            self._hold(self._confirmer, (challenger,), generation, CHALLENGE)

    def final(self, generation: int) -> None:
        """Let the best kernels of the run meet, unless they already did or there is no time left."""
        self._withdraw_failed()
        while self._confirmer and not self.champions.had_final(generation) and not self._deadline.over:
            # Excluded kernels are skipped, so that many more are read.
            count = self._finalists + self.champions.excluded
            fittest = self._view.contenders(generation=generation, above=-1.0, count=count)
            champion = [title.kernel] if (title := self.champions.champion) else []
            members = map(self._population.member, dict.fromkeys((*champion, *fittest)))
            finalists = self.champions.finalists(members)
            if not finalists:
                return
            self._hold(self._confirmer, finalists, generation, FINAL)

    def _challenger(self, generation: int) -> Member | None:
        """The next challenger. A closed generation has none left, so only new kernels are looked at; after the
        published speedup fell, all kernels of the run are."""
        candidates = self._arrived
        if self._others:
            required, count = self.champions.required, self.champions.excluded + 1
            candidates = self._view.contenders(generation=generation, above=required, count=count)
        challenger = self.champions.challenger(map(self._population.member, candidates))
        if challenger is None:
            self._others = False
            self._arrived.clear()
        return challenger

    def _withdraw_failed(self) -> None:
        # Read from the archive: an export or another run may have found since that a kernel fails.
        newest = self._view.newest_evaluation()
        self._record((), self._view.failed_since(self._seen))
        self._seen = newest

    def _record(self, made: Sequence[Confirmation], failed: Collection[str]) -> None:
        before = self.champions.published
        self.champions.record(made, failed)
        self._others |= self.champions.published < before
        self._population.withdraw(failed)

    def _hold(self, confirmer: Confirmer, members: Sequence[Member], generation: int, purpose: str) -> None:
        context, title = self._context, self.champions.champion
        champion = title.kernel if title else None
        kernels: dict[str, Kernel] = {member.kernel.id: member.kernel for member in members}
        if champion is not None:
            kernels.setdefault(champion, self._view.kernel(champion))
        self._announce(tuple(kernels))
        rounds, started = context.settings.evaluation.confirm_rounds, self._deadline.elapsed()
        contest = confirmer.compete(context.problem, list(kernels.values()), rounds=rounds)
        # The reference is measured beside the kernels.
        seconds = (self._deadline.elapsed() - started) / (len(kernels) + 1)
        self._deadline.reserve = max(self._deadline.reserve, seconds * (self._finalists + 1))
        if purpose == CHALLENGE and champion in contest.failed:
            made = []  # the champion before it takes the title back, and the challenger has yet to meet that one
        else:
            made = confirmations_of(
                contest,
                run=context.run.id,
                generation=generation,
                purpose=purpose,
                champion=champion,
                published=title.speedup if title else 1.0,
            )
        context.archive.add_contest(made, tuple(contest.failed.values()))
        self._record(made, contest.failed.keys())


def confirmations_of(
    contest: Contest, *, run: str, generation: int, purpose: str, champion: str | None, published: float = 1.0
) -> list[Confirmation]:
    """What a contest says about each kernel that passed.

    Args:
        contest: the times.
        run: id of the run.
        generation: the contest took place after it.
        purpose: "challenge" or "final".
        champion: id of the champion before the contest. It is the others' rival; without one, or when it failed in
            this contest, the reference is. In a final the champion itself is confirmed, against the reference.
        published: the champion's speedup. Where memory was too short for the champion, a challenger must exceed it.
    """
    rival = champion if champion in contest.times else None
    absent = champion is not None and rival is None and champion not in contest.failed
    competitors = [kernel for kernel in contest.times if purpose == FINAL or kernel != champion]
    least = published if absent else 1.0
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
                comparison=comparison_of(ratio.low / least, ratio.high / least, contest.tie),
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
