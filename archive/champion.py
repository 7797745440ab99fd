"""Who holds the title of a run: a pure function of its confirmations, the same while it runs and ever after."""

from collections.abc import Collection, Sequence

from kbevolve.archive.records import Comparison, Confirmation

#: Purposes of a confirmation.
CHALLENGE, FINAL = "challenge", "final"


def champion_of(confirmations: Sequence[Confirmation], failed: Collection[str] = ()) -> Confirmation | None:
    """The confirmation whose speedup is the run's published one.

    The eager reference holds the title first, that is nobody. A challenger takes it by being faster than its rival
    beyond the noise; a tie leaves it where it is. A final decides among all who met in it.

    Args:
        confirmations: those of one run, in the order they were made.
        failed: kernels that did not pass when they were judged again; they hold no title, whatever they won.

    Returns:
        The champion's newest deciding confirmation, None as long as nobody was confirmed to be faster than eager.
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
    """Who wins a final: the fastest of those beyond a tie with the champion, else the champion itself.

    Where there was no champion to beat, it is whoever has at least shown the most over eager.
    """
    faster = [one for one in met if one.rival is not None and one.comparison is Comparison.FASTER]
    if faster:
        return max(faster, key=lambda one: one.ratio_low)
    rivals = {one.rival for one in met}
    defended = [one for one in met if one.kernel in rivals]
    return max(defended or met, key=lambda one: one.speedup_low)
