"""What a run does without progress: it explores, then backtracks, then stops."""

from enum import IntEnum

#: The smallest factor that counts as an improvement: less is within the differences between machines and hours.
ACCEPTED = 1.01
#: Fewer evaluations without an improvement may be chance.
LEAST_WINDOW = 25


class Stage(IntEnum):
    """How a run searches, in order."""

    SEARCHING = 0  # as always
    EXPLORING = 1  # flatter ranks, more draws that follow no credit, bold ideas
    BACKTRACKING = 2  # the worst island restarts from the best of another; parents from niches with few children
    OVER = 3  # no more progress is expected


def window(evaluations: int, patience: float) -> int:
    """Evaluations without an improvement after which a run takes the next stage: a share of all; 0 for never."""
    return max(LEAST_WINDOW, int(evaluations * patience)) if patience else 0


def stage_of(stalled: int, window: int) -> Stage:
    """The stage of a run that has made so many evaluations since its last improvement."""
    return Stage(min(stalled // window, Stage.OVER)) if window else Stage.SEARCHING
