"""The champion of a run: a pure function of its confirmations."""

from collections.abc import Collection, Sequence

from kbevolve.archive.records import Comparison, Confirmation

#: Purposes of a confirmation.
CHALLENGE, FINAL = "challenge", "final"


def champion_of(confirmations: Sequence[Confirmation], failed: Collection[str] = ()) -> Confirmation | None:
    """The confirmation whose speedup is the run's published one.

    At first there is no champion, and the eager reference is the rival. A challenger becomes champion when it is faster
    than its rival beyond the noise; a tie changes nothing. A final decides among all kernels in it.

    The confirmations are those of one run, in the order they were made; `failed` kernels, which failed when they were
    judged again, cannot be champion. None while no kernel is confirmed to be faster than eager.
    """
    champion: Confirmation | None = None
    finals: dict[int, list[Confirmation]] = {}
    for confirmation in confirmations:
        if confirmation.kernel in failed:
            continue
        if confirmation.purpose == FINAL:
            met = finals.setdefault(confirmation.generation, [])
            met.append(confirmation)
            champion = _winner(met)
        elif confirmation.comparison is Comparison.FASTER:
            champion = confirmation
    return champion


def _winner(met: Sequence[Confirmation]) -> Confirmation:
    """The winner of a final: the fastest kernel that is faster than the champion beyond the noise, else the champion.

    Without a champion it is the kernel with the highest lower end of its speedup over eager.
    """
    faster = [one for one in met if one.rival is not None and one.comparison is Comparison.FASTER]
    if faster:
        return max(faster, key=lambda one: one.ratio_low)
    rivals = {one.rival for one in met}
    defended = [one for one in met if one.kernel in rivals]
    return max(defended or met, key=lambda one: one.speedup_low)
