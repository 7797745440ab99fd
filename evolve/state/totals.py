"""What a run has created, judged and paid for, as counts."""

from collections import Counter

from kbevolve.archive.records import Birth, BirthState, Evaluation, Verdict
from kbevolve.archive.throughput import ALONE_PHASES, SHARED_PHASES

#: Phases of an evaluation that hold the device.
DEVICE_PHASES = (*SHARED_PHASES, *ALONE_PHASES)


class RunTotals:
    """The counts of one run.

    Args:
        since: when the run began, in seconds since 1970: what was judged before cost another run.
    """

    def __init__(self, *, since: float) -> None:
        self._since = since
        #: Distinct kernels by verdict, and attempts by state.
        self.verdicts: Counter[Verdict] = Counter()
        self.states: Counter[BirthState] = Counter()
        #: Duplicates that differ in names only, and kernels with the verdict of another one that has the same binary.
        self.renamed = 0
        self.identical = 0
        #: Prompt and completion tokens by the model that was asked, also where it reported none.
        self.tokens: dict[str, tuple[int, int]] = {}
        #: Kernels judged for this run, and the seconds that their phases held a device.
        self.evaluations = 0
        self.device_seconds = 0.0
        #: The newest generation in which an island had anything new; -1 before the first.
        self.newest_child = -1

    def add_attempt(self, birth: Birth) -> None:
        """Count an attempt, whatever came of it."""
        self.states[birth.state] += 1
        self.renamed += birth.proposed_kernel is not None
        if birth.model or birth.prompt_tokens or birth.completion_tokens:
            sent, received = self.tokens.get(birth.model, (0, 0))
            self.tokens[birth.model] = sent + birth.prompt_tokens, received + birth.completion_tokens
        if birth.state is not BirthState.EXHAUSTED:
            self.newest_child = birth.generation

    def add_kernel(self, evaluation: Evaluation) -> None:
        """Count a new kernel with its verdict."""
        self.verdicts[evaluation.verdict] += 1
        if evaluation.compiled.identical_to is not None:
            self.identical += 1
        elif (
            not 0 < evaluation.execution.started_at < self._since
        ):  # early versions did not record the time (0): such a one counts
            self.evaluations += 1
            self.device_seconds += sum(evaluation.execution.phases.get(name, 0.0) for name in DEVICE_PHASES)

    @property
    def judged(self) -> int:
        """Distinct kernels with a verdict, whichever run paid for it."""
        return self.verdicts.total()

    @property
    def prompt_tokens(self) -> int:
        """Tokens sent to all models."""
        return sum(sent for sent, _ in self.tokens.values())

    @property
    def completion_tokens(self) -> int:
        """Tokens received from all models."""
        return sum(received for _, received in self.tokens.values())
