"""What a run has created, judged and paid for, as counts."""

from collections import Counter
from dataclasses import dataclass, field

from kbevolve.archive.records import Birth, BirthState, Evaluation, Verdict
from kbevolve.archive.throughput import device_seconds_of


@dataclass(slots=True, kw_only=True)
class RunTotals:
    """The counts of one run."""

    #: When the run began, in seconds since 1970: what was judged before cost another run.
    since: float
    #: Distinct kernels by verdict, and attempts by state.
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    states: Counter[BirthState] = field(default_factory=Counter)
    #: Duplicates that differ in names only, and kernels with the verdict of another one that has the same binary.
    renamed: int = 0
    identical: int = 0
    #: Prompt and completion tokens by the model that was asked, also where it reported none.
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Kernels judged for this run, and the seconds that their phases held a device.
    evaluations: int = 0
    device_seconds: float = 0.0
    #: The newest generation in which an island had anything new; -1 before the first.
    newest_child: int = -1

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
        elif not 0 < evaluation.execution.started_at < self.since:  # early versions recorded no time (0): these count
            self.evaluations += 1
            self.device_seconds += device_seconds_of(evaluation)

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
