"""Judges that are elsewhere: a run goes as far as the verdicts reach that are in the archive, and waits for more."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from kbevolve.archive.records import Kernel, ProblemCard, Run
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import Unanswered
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.timing.baselines import Baseline


@dataclass(slots=True, kw_only=True)
class AbsentJudges:
    """In the place of a run's judges: knows what the archive knows, and judges nothing. It costs nothing to open."""

    archive: Archive
    run: Run
    #: How many kernels wait at once does not matter: none is held up by another.
    width: int = 1
    #: Whether a judge was missed.
    wanted: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def card(self, problem: Problem) -> ProblemCard:
        """What a judge found out earlier.

        Raises:
            Unanswered: none ever looked.
        """
        known = self.archive.card(problem.id, self.run.device, precision_of(self.run))
        if known is None:
            self.wanted = True
            raise Unanswered(f"no judge has seen {problem.name} on {self.run.device}; `kbevolve ask` there first")
        return known

    def evaluate(self, problem: Problem, kernel: Kernel) -> NoReturn:
        """Raises Unanswered: the kernel waits for a judge."""
        self.wanted = True
        raise Unanswered(f"kernel {kernel.id} waits for its verdict")

    def compete(self, problem: Problem, kernels: Sequence[Kernel], *, rounds: int) -> NoReturn:
        """Raises Unanswered: the contest waits for a judge."""
        self.wanted = True
        raise Unanswered(f"a contest of {' and '.join(kernel.id for kernel in kernels)} waits for a judge")

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        """None, without a judge."""
        return ()
