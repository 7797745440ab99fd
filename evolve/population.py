"""What a run knows so far: its kernels, what the judge found, who holds which niche.

Nothing here is state of its own: everything is told by the archive's facts, in their order, by the same calls while
a run goes on and when it is resumed. So a resumed run knows exactly what the undisturbed one knew.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from kbevolve.archive.records import Birth, Evaluation, Idea, Kernel, Verdict
from kbevolve.evolve.brief import Failure
from kbevolve.islands.descriptors import describe
from kbevolve.islands.island import Entry, Island, Member


class Population:
    """The kernels of one run on their islands.

    Args:
        islands: how many.
    """

    def __init__(self, islands: int) -> None:
        self.islands = [Island(index=index) for index in range(islands)]
        self.births: list[Birth] = []
        self.kernels: dict[str, Kernel] = {}
        self.evaluations: dict[str, Evaluation] = {}
        self._ideas: dict[str, Idea] = {}
        self._niches: dict[str, str] = {}
        self._children: Counter[str] = Counter()
        self._failures: dict[int, list[Birth]] = defaultdict(list)
        self._gains: dict[str, float | None] = {}
        self._withdrawn: set[str] = set()

    def knows(self, kernel_id: str) -> bool:
        """Whether a birth of this run brought this kernel."""
        return kernel_id in self.kernels

    def is_correct(self, kernel_id: str) -> bool:
        """Whether the judge accepted this kernel."""
        evaluation = self.evaluations.get(kernel_id)
        return evaluation is not None and evaluation.verdict is Verdict.CORRECT

    def observe(self, birth: Birth, kernel: Kernel | None, idea: Idea | None, evaluation: Evaluation | None) -> None:
        """Take note of a birth and of what the judge found about its kernel."""
        self.births.append(birth)
        if birth.parents:
            self._children[birth.parents[0]] += 1
        if idea is not None:
            self._ideas[idea.id] = idea
            self._gains.setdefault(idea.id, None)
        if kernel is None or evaluation is None:
            return
        self.kernels[kernel.id] = kernel
        self.evaluations[kernel.id] = evaluation
        if evaluation.verdict is not Verdict.CORRECT:
            self._failures[birth.island].append(birth)
        elif idea is not None:
            self._credit(idea.id, birth, evaluation)

    def enter(self, island: int, kernel_id: str) -> tuple[Entry, str]:
        """Let a correct kernel arrive on an island; what it did to its niche, and the niche's key."""
        member = self.member(kernel_id)
        entry = self.islands[island].entry(member)
        self.islands[island] = self.islands[island].with_member(member)
        return entry, member.niche

    def member(self, kernel_id: str) -> Member:
        """A correct kernel as the islands see it."""
        kernel = self.kernels[kernel_id]
        if kernel_id not in self._niches:
            self._niches[kernel_id] = describe(kernel).key
        return Member(kernel=kernel, evaluation=self.evaluations[kernel_id], niche=self._niches[kernel_id])

    def island(self, index: int) -> Island:
        """An island whose members know how many children they had."""
        return self.islands[index].mapped(lambda member: replace(member, children=self._children[member.kernel.id]))

    def history(self) -> tuple[Member, ...]:
        """Every correct kernel of the run, in the order of birth."""
        return tuple(
            self.member(kernel_id)
            for kernel_id, evaluation in self.evaluations.items()
            if evaluation.verdict is Verdict.CORRECT
        )

    def best(self, *, apart_from: str | None = None) -> Member | None:
        """The fittest kernel of all islands that was not withdrawn; the earlier one of equals.

        Args:
            apart_from: a kernel id that counts only when there is no other, such as the reference's own.
        """
        history = self.standing()
        others = [member for member in history if member.kernel.id != apart_from]
        return max(others or history, key=lambda member: member.fitness, default=None)

    def standing(self) -> tuple[Member, ...]:
        """Every correct kernel that was not withdrawn, in the order of birth."""
        return tuple(member for member in self.history() if member.kernel.id not in self._withdrawn)

    def withdraw(self, kernel_ids: Iterable[str]) -> None:
        """Take note of kernels that did not pass when they were judged again: none of them is the best any more.

        They keep their places on the islands, which rest on first evaluations alone: so a run that is resumed breeds
        from the same parents, whenever it was that they failed.
        """
        self._withdrawn.update(kernel_ids)

    def failures(self, island: int, *, count: int = 5) -> tuple[Failure, ...]:
        """The newest failures of an island, newest first."""
        newest = {birth.kernel: birth for birth in self._failures[island]}
        return tuple(self.failure(birth) for birth in list(newest.values())[: -count - 1 : -1])

    def failure(self, birth: Birth) -> Failure:
        """A birth whose kernel did not pass, for a prompt."""
        assert birth.kernel is not None, "only a birth with a kernel can have failed in the judge's hands"
        return Failure(
            kernel=self.kernels[birth.kernel],
            evaluation=self.evaluations[birth.kernel],
            idea=self._ideas[birth.idea] if birth.idea else None,
        )

    def tried(self) -> dict[Idea, float | None]:
        """Ideas of this run with the best gain over the parent that came of each; None when no child of it worked."""
        return {idea: self._gains[idea_id] for idea_id, idea in self._ideas.items()}

    def _credit(self, idea_id: str, birth: Birth, evaluation: Evaluation) -> None:
        # The main parent of a repair is the failed child: the gain is over the first parent that worked.
        parent = next((self.evaluations[parent] for parent in birth.parents if self.is_correct(parent)), None)
        if parent is not None and parent.speedup and evaluation.speedup:
            gain = evaluation.speedup / parent.speedup
            self._gains[idea_id] = max(gain, self._gains[idea_id] or 0.0)
