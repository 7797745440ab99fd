"""What a run knows so far: who lives on its islands, what was tried, what failed, and counts of all the rest.

Nothing here is state of its own: everything is told by the archive's facts, in their order, by the same calls while
a run goes on and when it is resumed. So a resumed run knows exactly what the undisturbed one knew. And nothing here
grows with the run: what may be asked of any kernel of the past is read from the archive when it is asked.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from kbevolve.archive.records import Birth, BirthState, Evaluation, Idea, Operator, Verdict
from kbevolve.archive.run_view import RunView
from kbevolve.archive.throughput import ALONE_PHASES, SHARED_PHASES
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.duplicates import KnownFailures
from kbevolve.evolve.state.knowledge import Memory
from kbevolve.evolve.state.leaderboard import FITTEST, NEWEST, History
from kbevolve.evolve.state.learner import Learning
from kbevolve.islands.credit.posterior import Tally
from kbevolve.islands.credit.techniques import Key
from kbevolve.islands.island import Entry, Island, Member, fitness_of
from kbevolve.islands.niches import describe

#: Failures of an island that are shown to its next children.
SHOWN_FAILURES = 5
#: Ideas remembered with what came of them. Prompts show the newest 20; no idea is carried out twice while it is
#: remembered, and after so many others its parents are different ones.
TRIED = 512
#: Phases of an evaluation that hold the device.
DEVICE_PHASES = (*SHARED_PHASES, *ALONE_PHASES)
#: Generations in which a kernel may be born twice without being called a duplicate: all that may be open at once
#: (`search.lookahead` is at most 16), and the one that closes.
TWINS = 17


class Population:
    """The kernels of one run on their islands.

    Args:
        islands: how many.
        ledger: what the archive holds of the run.
        since: when the run began, in seconds since 1970: what was judged before cost another run.
        elsewhere: what other problems taught of techniques.
    """

    def __init__(
        self, islands: int, ledger: RunView, *, since: float = 0.0, elsewhere: Mapping[Key, Tally] | None = None
    ) -> None:
        self.islands = [Island(index=index) for index in range(islands)]
        #: Distinct kernels by verdict, and births by state.
        self.verdicts: Counter[Verdict] = Counter()
        self.states: Counter[BirthState] = Counter()
        #: Duplicates that were written under other names.
        self.renamed = 0
        #: Kernels that have the verdict of another one of the same machine code.
        self.twins = 0
        #: Prompt and completion tokens by the model that was asked, also where it told none.
        self.tokens: dict[str, tuple[int, int]] = {}
        #: Kernels judged for this run, and the seconds that their phases held a device.
        self.evaluations = 0
        self.device_seconds = 0.0
        #: The newest generation in which an island had anything new; -1 before the first.
        self.newest_fruit = -1
        self._ledger = ledger
        self._since = since
        self._history = History()
        self._recalled: tuple[Member, ...] | None = None
        self._ideas: dict[str, Idea] = {}
        self._gains: dict[str, float | None] = {}
        self._children: Counter[str] = Counter()
        self._failures: dict[int, dict[str, Birth]] = defaultdict(dict)
        self._twins: deque[set[str]] = deque([set()], maxlen=TWINS)
        self._withdrawn: set[str] = set()
        self._learning = Learning(elsewhere)
        self._memory: Memory | None = None
        self._blunders = KnownFailures()
        #: The most that any kernel has at least shown, and how many were judged when an island last began anew.
        self._peak = 0.0
        self._restarted = -1
        # Facts, so that they may be kept as long as there is room. The history is asked for as a whole.
        self._member = lru_cache(maxsize=2 * (FITTEST + NEWEST))(self._read_member)
        self._failure = lru_cache(maxsize=16 * SHOWN_FAILURES)(self._read_failure)
        self._evaluation = lru_cache(maxsize=FITTEST)(self._read_evaluation)
        self._idea = lru_cache(maxsize=TRIED)(ledger.idea)

    # ---- told ------------------------------------------------------------------------------------------------------

    def observe(self, birth: Birth, evaluation: Evaluation | None) -> None:
        """Take note of a birth and of what the judge found about its kernel; both are in the archive."""
        self.states[birth.state] += 1
        self.renamed += birth.proposed_kernel is not None
        sent, received = self.tokens.get(birth.model, (0, 0))
        if birth.model or birth.prompt_tokens or birth.completion_tokens:
            self.tokens[birth.model] = sent + birth.prompt_tokens, received + birth.completion_tokens
        if birth.state is not BirthState.EXHAUSTED:
            self.newest_fruit = birth.generation
        if birth.parents:
            self._children[birth.parents[0]] += 1
        if birth.idea is not None:
            self._try(birth.idea)
        parent = self._parent(birth)
        if birth.operator is not Operator.SEED and (birth.parents or birth.kernel):
            idea = self._idea(birth.idea) if birth.idea is not None else None
            self._learning.observe(birth, idea, evaluation, parent)
            self._memory = None
        if birth.kernel is None or evaluation is None:
            return
        self._blunders.observe(birth, evaluation, parent)
        correct = evaluation.verdict is Verdict.CORRECT
        if birth.state is BirthState.CREATED and not any(birth.kernel in born for born in self._twins):
            self._twins[-1].add(birth.kernel)
            self.verdicts[evaluation.verdict] += 1
            self.twins += evaluation.compiled.identical_to is not None
            self._memory = None
            self._pay(evaluation)
            if correct:
                self._history.add(birth.kernel, fitness_of(evaluation))
                self._peak = max(self._peak, evaluation.timing.speedup_low or 0.0)
                self._recalled = None
        if not correct:
            self._fail(birth.island, birth.kernel, birth)
        elif birth.idea is not None and parent is not None:
            self._credit(birth.idea, evaluation, parent)

    def enter(self, island: int, kernel_id: str) -> tuple[Entry, str]:
        """Let a correct kernel arrive on an island; what it did to its niche, and the niche's key."""
        member = self.member(kernel_id)
        entry = self.islands[island].entry(member)
        self.islands[island] = self.islands[island].with_member(member)
        return entry, member.niche

    def recall(self, birth: Birth, evaluation: Evaluation | None, *, placed: bool) -> None:
        """Take note of a birth of a generation that is over; `placed` tells whether its kernel took a niche then.

        As `observe` and `enter`, but the many kernels that changed nothing on their islands are not read at all.
        """
        self.observe(birth, evaluation)
        if birth.kernel is None or evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            return
        if placed or self.islands[birth.island].has_room(birth.kernel, fitness_of(evaluation)):
            self.enter(birth.island, birth.kernel)

    def restart(self, island: int, kernel_id: str) -> tuple[Entry, str]:
        """Let an island begin anew with one kernel; as `enter`."""
        self.islands[island] = Island(index=island)
        self._restarted = self.judged
        return self.enter(island, kernel_id)

    def end_generation(self, *, published: float | None = None, contests: bool = False) -> None:
        """A generation is over. Children are counted as long as their parent lives on an island.

        Args:
            published: the speedup that contests have confirmed by now; None while there is none.
            contests: whether the run holds any. Then what looks faster than eager counts as an improvement only once
                it is confirmed; in a run without them, as soon as it was seen.
        """
        shown = max(min(self._peak, 1.0), published or 0.0) if contests else self._peak
        self._learning.improved(shown, judged=self.judged)
        self._memory = None
        living = {member.kernel.id for island in self.islands for member in island.members}
        self._children = Counter({kernel: count for kernel, count in self._children.items() if kernel in living})
        self._twins.append(set())

    def withdraw(self, kernel_ids: Iterable[str]) -> None:
        """Take note of kernels that did not pass when they were judged again: none of them is the best any more.

        They keep their places on the islands, which rest on first evaluations alone: so a run that is resumed breeds
        from the same parents, whenever it was that they failed.
        """
        self._withdrawn.update(kernel_ids)

    # ---- asked -----------------------------------------------------------------------------------------------------

    @property
    def judged(self) -> int:
        """Distinct kernels with a verdict, whichever run paid for it."""
        return self.verdicts.total()

    @property
    def due(self) -> bool:
        """Whether no island has begun anew since the last improvement."""
        return self._restarted < self._learning.marked

    def memory(self) -> Memory:
        """What was learnt so far; it does not change when the run goes on."""
        if self._memory is None:
            self._memory = self._learning.memory(judged=self.judged)
        return self._memory

    def blunders(self) -> tuple[str, ...]:
        """The newest kernels that failed or were slow, by id: what new ones are compared with."""
        return self._blunders.snapshot()

    @property
    def prompt_tokens(self) -> int:
        """Tokens sent to all models."""
        return sum(sent for sent, _ in self.tokens.values())

    @property
    def completion_tokens(self) -> int:
        """Tokens received from all models."""
        return sum(received for _, received in self.tokens.values())

    def is_correct(self, kernel_id: str) -> bool:
        """Whether the judge accepted this kernel."""
        evaluation = self._ledger.evaluation(kernel_id)
        return evaluation is not None and evaluation.verdict is Verdict.CORRECT

    def member(self, kernel_id: str) -> Member:
        """A correct kernel as the islands see it."""
        return self._member(kernel_id)

    def island(self, index: int) -> Island:
        """An island whose members know how many children they had."""
        return self.islands[index].with_children(self._children)

    def history(self) -> tuple[Member, ...]:
        """The fittest and the newest correct kernels of the run (`evolve.state.leaderboard`), in the order of birth."""
        if self._recalled is None:
            self._recalled = tuple(map(self.member, self._history.in_order()))
        return self._recalled

    def best(self, *, apart_from: str | None = None) -> Member | None:
        """The fittest kernel that was not withdrawn; the earlier one of equals. None while there is none.

        Args:
            apart_from: a kernel id that counts only when there is no other, such as the reference's own.
        """
        last_resort = None
        for kernel in filter(self.stands, self._history.ranked()):
            if kernel != apart_from:
                return self.member(kernel)
            last_resort = kernel
        return None if last_resort is None else self.member(last_resort)

    def standing(self) -> Iterator[Member]:
        """The fittest kernels that were not withdrawn, the best first."""
        return (self.member(kernel) for kernel in self._history.ranked() if self.stands(kernel))

    def stands(self, kernel_id: str) -> bool:
        """Whether a kernel was not withdrawn."""
        return kernel_id not in self._withdrawn

    def failures(self, island: int) -> tuple[Failure, ...]:
        """The newest failures of an island, newest first."""
        return tuple(self.failure(birth) for birth in reversed(self._failures[island].values()))

    def failure(self, birth: Birth) -> Failure:
        """A birth whose kernel did not pass, for a prompt."""
        assert birth.kernel is not None, "only a birth with a kernel can have failed in the judge's hands"
        return self._failure(birth.kernel, birth.idea)

    def tried(self) -> dict[Idea, float | None]:
        """Ideas of this run with the best gain over the parent that came of each; None when no child of it worked."""
        return {idea: self._gains[idea_id] for idea_id, idea in self._ideas.items()}

    def note_of(self, kernel_id: str) -> str:
        """What was written down when a kernel was first born; "" when this run did not bear it."""
        birth = self._ledger.first_birth(kernel_id)
        return birth.note if birth else ""

    # ---- kept ------------------------------------------------------------------------------------------------------

    def _pay(self, evaluation: Evaluation) -> None:
        # Earlier versions did not tell when an evaluation began (0): such a one counts. What has another kernel's
        # verdict was not evaluated.
        if evaluation.compiled.identical_to is None and not 0 < evaluation.execution.started_at < self._since:
            self.evaluations += 1
            self.device_seconds += sum(evaluation.execution.phases.get(name, 0.0) for name in DEVICE_PHASES)

    def _try(self, idea_id: str) -> None:
        if idea_id not in self._ideas:
            self._ideas[idea_id] = self._idea(idea_id)
            self._gains[idea_id] = None
            if len(self._ideas) > TRIED:
                oldest = next(iter(self._ideas))
                del self._ideas[oldest], self._gains[oldest]

    def _parent(self, birth: Birth) -> Evaluation | None:
        """Of the first parent that worked: the main parent of a repair is the failed child."""
        for kernel in birth.parents:
            with suppress(LookupError):
                if (found := self._evaluation(kernel)).verdict is Verdict.CORRECT:
                    return found
        return None

    def _credit(self, idea_id: str, evaluation: Evaluation, parent: Evaluation) -> None:
        if parent.timing.speedup and evaluation.timing.speedup:
            gain = evaluation.timing.speedup / parent.timing.speedup
            self._gains[idea_id] = max(gain, self._gains[idea_id] or 0.0)

    def _fail(self, island: int, kernel_id: str, birth: Birth) -> None:
        failures = self._failures[island]
        failures[kernel_id] = birth
        if len(failures) > SHOWN_FAILURES:
            del failures[next(iter(failures))]

    def _read_member(self, kernel_id: str) -> Member:
        kernel, evaluation = self._ledger.kernel(kernel_id), self._ledger.evaluation(kernel_id)
        assert evaluation is not None, "a member was judged"
        return Member(kernel=kernel, evaluation=evaluation, niche=describe(kernel, evaluation.compiled.traits).key)

    def _read_evaluation(self, kernel_id: str) -> Evaluation:
        evaluation = self._ledger.evaluation(kernel_id)
        if evaluation is None:
            raise LookupError(kernel_id)  # so that "not judged yet" is not kept
        return evaluation

    def _read_failure(self, kernel_id: str, idea_id: str | None) -> Failure:
        evaluation = self._ledger.evaluation(kernel_id)
        assert evaluation is not None, "a failure was judged"
        idea = self._ledger.idea(idea_id) if idea_id else None
        return Failure(kernel=self._ledger.kernel(kernel_id), evaluation=evaluation, idea=idea)
