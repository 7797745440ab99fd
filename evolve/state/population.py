"""What a run knows so far: the kernels on its islands, its newest failures, its best kernels, and what it has learnt.

Everything follows from the archive's facts, in their order, by the same calls while a run goes on and when it is
resumed. So a resumed run knows exactly what the undisturbed one knew. Nothing here grows with the run: what concerns a
kernel of the past is read from the archive when it is needed.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Kernel, Verdict
from kbevolve.archive.run_view import RunView
from kbevolve.evolve.state.attempts import Failure, first_correct, known_failures, teaches
from kbevolve.evolve.state.leaderboard import FITTEST, NEWEST, Leaderboard
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.totals import RunTotals
from kbevolve.evolve.state.transfer import TransferredKnowledge
from kbevolve.islands.credit.techniques import Experience
from kbevolve.islands.island import Entry, Island, Member, fitness_of, fittest
from kbevolve.islands.niches import describe

#: Failures of an island that are shown to its next children.
SHOWN_FAILURES = 5
#: Failed kernels of the run from which numbers are learnt.
LEARNT_FAILURES = 100
#: Generations in which two attempts may create one kernel without either being called a duplicate: all that may be open
#: at once (`search.lookahead` is at most 16), and the one that closes.
OPEN_GENERATIONS = 17


class Population:
    """The kernels of one run on their islands.

    Args:
        islands: how many.
        view: what the archive holds of the run.
        since: when the run began, in seconds since 1970: what was judged before cost another run.
        transfer: what other problems taught.
    """

    def __init__(
        self, islands: int, view: RunView, *, since: float = 0.0, transfer: TransferredKnowledge | None = None
    ) -> None:
        self.islands = [Island(index=index) for index in range(islands)]
        self.totals = RunTotals(since=since)
        self._view = view
        self._leaderboard = Leaderboard()
        self._history: tuple[Member, ...] | None = None
        self._children: Counter[str] = Counter()
        self._failures: dict[int, dict[str, Birth]] = defaultdict(dict)
        #: Ids of the newest that failed on any island, oldest first.
        self._failed: dict[str, None] = {}
        self._recent: deque[set[str]] = deque([set()], maxlen=OPEN_GENERATIONS)
        transfer = transfer or TransferredKnowledge()
        self._memory = Memory(experience=Experience(elsewhere=transfer.tallies), claims=transfer.claims)
        #: The newest kernels that failed or were slow, by id: new kernels are compared with them.
        self.known_failures: tuple[str, ...] = ()
        #: The most that any kernel has at least shown, and how many were judged when an island was last restarted.
        self._peak = 0.0
        self._restarted = -1
        #: The fittest kernel on any island, if it is one that the generation closed last has created; and the fittest.
        #: By first evaluations, as parents are: a resumed run must choose alike, whatever was measured again later.
        self.new_champion: Member | None = None
        self._champion: Member | None = None
        # Facts, so that they may be kept as long as there is room. The history is asked for as a whole.
        #: A correct kernel by its id, as the islands see it.
        self.member = lru_cache(maxsize=2 * (FITTEST + NEWEST))(self._read_member)
        #: What a prompt shows of an attempt whose kernel did not pass.
        self.failure = lru_cache(maxsize=16 * SHOWN_FAILURES)(self._read_failure)
        self._failed_kernel = lru_cache(maxsize=LEARNT_FAILURES)(view.kernel)
        self._evaluation = lru_cache(maxsize=FITTEST)(self._read_evaluation)

    # ---- facts -----------------------------------------------------------------------------------------------------

    def observe(self, birth: Birth, evaluation: Evaluation | None) -> None:
        """Learn from an attempt and from the verdict on its kernel; both are in the archive."""
        self.totals.add_attempt(birth)
        if birth.parents:
            self._children[birth.parents[0]] += 1
        parent = self._parent(birth)
        if teaches(birth):
            self._memory = self._memory.after(birth, self._idea(birth), evaluation, parent)
        if birth.kernel is None or evaluation is None:
            return
        self.known_failures = known_failures(self.known_failures, birth, evaluation, parent)
        correct = evaluation.verdict is Verdict.CORRECT
        if birth.state is BirthState.CREATED and not any(birth.kernel in kernels for kernels in self._recent):
            self._recent[-1].add(birth.kernel)
            self.totals.add_kernel(evaluation)
            self._memory = replace(self._memory, judged=self.totals.judged)
            if correct:
                self._leaderboard.add(birth.kernel, fitness_of(evaluation))
                self._peak = max(self._peak, evaluation.timing.speedup_low or 0.0)
                self._history = None
        if not correct:
            failures = self._failures[birth.island]
            failures[birth.kernel] = birth
            if len(failures) > SHOWN_FAILURES:
                del failures[next(iter(failures))]
            self._failed[birth.kernel] = None
            if len(self._failed) > LEARNT_FAILURES:
                del self._failed[next(iter(self._failed))]

    def enter(self, island: int, kernel_id: str) -> tuple[Entry, str]:
        """Let a correct kernel enter an island; what it changed in its niche, and the niche's key."""
        member = self.member(kernel_id)
        entry = self.islands[island].entry(member)
        self.islands[island] = self.islands[island].with_member(member)
        return entry, member.niche

    def recall(self, birth: Birth, evaluation: Evaluation | None, *, placed: bool) -> None:
        """Observe an attempt of a closed generation; `placed` says whether its kernel took a niche then.

        As `observe` and `enter`, but the many kernels that changed nothing on their islands are not read at all.
        """
        self.observe(birth, evaluation)
        if birth.kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return
        if placed or self.islands[birth.island].has_room(birth.kernel, fitness_of(evaluation)):
            self.enter(birth.island, birth.kernel)

    def restart(self, island: int, kernel_id: str) -> tuple[Entry, str]:
        """Empty an island and let one kernel enter it; as `enter`."""
        self.islands[island] = Island(index=island)
        self._restarted = self.totals.judged
        return self.enter(island, kernel_id)

    def end_generation(self, *, published: float | None = None, contests: bool = False) -> None:
        """Close a generation. Children are counted as long as their parent is on an island.

        Args:
            published: the speedup that contests have confirmed by now; None while there is none.
            contests: whether the run holds any. Then what looks faster than eager counts as an improvement only once
                it is confirmed; in a run without them, as soon as it was measured.
        """
        shown = max(min(self._peak, 1.0), published or 0.0) if contests else self._peak
        self._memory = self._memory.improved(shown)
        best, known = fittest(self.islands), self._champion
        # All islands begin with the starting kernels, so that the best of these is no news.
        self.new_champion = None if known is None or best == known else best
        self._champion = best
        living = {member.kernel.id for island in self.islands for member in island.members}
        self._children = Counter({kernel: count for kernel, count in self._children.items() if kernel in living})
        self._recent.append(set())

    def withdraw(self, kernel_ids: Iterable[str]) -> None:
        """Kernels that did not pass a second evaluation: none of them is the best any more.

        They keep their niches on the islands, which rest on first evaluations alone. So a resumed run has the same
        parents, whenever it was that they failed.
        """
        self._leaderboard.withdraw(kernel_ids)

    # ---- questions -------------------------------------------------------------------------------------------------

    @property
    def restart_due(self) -> bool:
        """Whether no island was restarted since the last improvement."""
        return self._restarted < self._memory.marked

    def memory(self) -> Memory:
        """What was learnt so far; it does not change when the run goes on."""
        return self._memory

    def is_correct(self, kernel_id: str) -> bool:
        """Whether the judge accepted this kernel."""
        evaluation = self._view.evaluation(kernel_id)
        return evaluation is not None and evaluation.verdict is Verdict.CORRECT

    def island(self, index: int) -> Island:
        """An island whose members know how many children they had."""
        # Kept, so that only those with a new child are written again.
        self.islands[index] = self.islands[index].with_children(self._children)
        return self.islands[index]

    def history(self) -> tuple[Member, ...]:
        """The fittest and the newest correct kernels (`evolve.state.leaderboard`), in order of creation."""
        if self._history is None:
            self._history = tuple(map(self.member, self._leaderboard.in_order()))
        return self._history

    def failed(self) -> tuple[Kernel, ...]:
        """The newest kernels that failed, on any island, in the order in which they did."""
        return tuple(map(self._failed_kernel, self._failed))

    def best(self, *, apart_from: str | None = None) -> Member | None:
        """The fittest valid kernel; the earlier one of equals. None while there is none.

        Args:
            apart_from: a kernel id that counts only when there is no other, such as the reference's own.
        """
        last_resort = None
        for kernel in self._leaderboard.ranked():
            if kernel != apart_from:
                return self.member(kernel)
            last_resort = kernel
        return None if last_resort is None else self.member(last_resort)

    def ranked(self) -> Iterator[Member]:
        """The fittest valid kernels, the best first."""
        return map(self.member, self._leaderboard.ranked())

    def is_valid(self, kernel_id: str) -> bool:
        """Whether a kernel was not withdrawn."""
        return self._leaderboard.is_valid(kernel_id)

    def failures(self, island: int) -> tuple[Failure, ...]:
        """The newest failures of an island, newest first."""
        return tuple(self.failure(birth) for birth in reversed(self._failures[island].values()))

    def _read_failure(self, birth: Birth) -> Failure:
        """An attempt whose kernel did not pass, for a prompt."""
        assert birth.kernel is not None, "the judge found the failure in a kernel"
        kernel, evaluation = self._view.kernel(birth.kernel), self._view.evaluation(birth.kernel)
        assert evaluation is not None, "a failure was judged"
        return Failure(kernel=kernel, evaluation=evaluation, idea=self._idea(birth))

    def note_of(self, kernel_id: str) -> str:
        """The note of the attempt that first created a kernel; "" when this run did not create it."""
        birth = self._view.first_birth(kernel_id)
        return birth.note if birth else ""

    def _idea(self, birth: Birth) -> Idea | None:
        return self._view.idea(birth.idea) if birth.idea else None

    def _parent(self, birth: Birth) -> Evaluation | None:
        return first_correct(self._evaluations(birth.parents))

    def _evaluations(self, kernels: Iterable[str]) -> Iterator[Evaluation]:
        """Of those that were judged."""
        for kernel in kernels:
            with suppress(LookupError):
                yield self._evaluation(kernel)

    def _read_member(self, kernel_id: str) -> Member:
        kernel, evaluation = self._view.kernel(kernel_id), self._view.evaluation(kernel_id)
        assert evaluation is not None, "a member was judged"
        return Member(kernel=kernel, evaluation=evaluation, niche=describe(kernel, evaluation.compiled.traits))

    def _read_evaluation(self, kernel_id: str) -> Evaluation:
        evaluation = self._view.evaluation(kernel_id)
        if evaluation is None:
            raise LookupError(kernel_id)  # so that "not judged yet" is not kept
        return evaluation
