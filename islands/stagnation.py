"""What a run does while nothing better comes: it explores, then goes back, then stops."""

from enum import IntEnum

#: An improvement counts from this factor on: less is within what machines and hours differ by.
ACCEPTED = 1.01
#: Fewer evaluations without an improvement are bad luck.
LEAST_WINDOW = 25


class Stage(IntEnum):
    """How a run breeds, in the order in which it comes to it."""

    SEARCHING = 0  # as always
    EXPLORING = 1  # flatter ranks, more rewrites, fresh ideas
    BACKTRACKING = 2  # the worst island begins anew from the best of another; parents from niches hardly bred from
    OVER = 3  # nothing more is to be expected


def window(evaluations: int, patience: float) -> int:
    """Evaluations without an improvement after which a run takes the next stage; 0 for never.

    Args:
        evaluations: that the run is going to make.
        patience: the share of them; 0 for a run that goes on as it is, whatever comes.
    """
    return max(LEAST_WINDOW, int(evaluations * patience)) if patience else 0


def stage_of(stalled: int, window: int) -> Stage:
    """The stage of a run that has made so many evaluations since its last improvement."""
    return Stage(min(stalled // window, Stage.OVER)) if window else Stage.SEARCHING
