"""The problem card: what the judge finds out about a problem before it judges any kernel.

A problem may be easy to cheat (its output hardly depends on its input), impossible to judge (it is random), or of
little worth (a call is as short as a launch). The card has a flag with a reason for each such fact, and the bounds of
the problem's time. Making a card takes some dozen calls of the reference; the disk cache keeps it.
"""

from dataclasses import asdict

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.conditions import judging_conditions
from kbevolve.evaluators.analysis.inspection import WEIGHT_SEED, Inspection
from kbevolve.evaluators.analysis.roofline import Roofline, roofline_of
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import is_out_of_memory, lack_of_memory, refuse_beyond_free, release_cache
from kbevolve.evaluators.disk_cache import DiskCache

#: Version of the cards' content; another number makes cached cards invalid.
FORMAT = 5


def card_for(
    problem: Problem,
    device: Device,
    precision: str,
    *,
    reference: Reference | None = None,
    roofline: Roofline | None = None,
    disk_cache: DiskCache | None = None,
    fresh: bool = False,
) -> ProblemCard:
    """The problem's card, from the disk cache (the user's own if none is given) or from calls of the reference.

    Args:
        problem: which problem.
        device: where its kernels are judged.
        precision: of the task.
        reference: the problem's reference at this precision, with any weights, unchanged afterwards; a new one if None.
        roofline: the device's rates; if None, from the disk cache or measured.
        disk_cache: where cards are kept.
        fresh: make the card again, and measure the device again unless `roofline` is given.

    Raises:
        EvaluatorError: the reference fails, or memory is too short to inspect it.
    """
    disk_cache = disk_cache or DiskCache()
    key = f"{problem.id}|{device.fingerprint}|{precision}|{FORMAT}"
    tree = None if fresh else disk_cache.get("card", key)
    if tree:
        try:
            return ProblemCard(**tree)
        except TypeError:  # the fields are not ours: make the card again
            pass
    refuse_beyond_free(device)
    reference = reference or Reference(problem, device, precision, weight_seed=WEIGHT_SEED)
    roofline = roofline or roofline_of(device, disk_cache=disk_cache, fresh=fresh)
    try:
        with judging_conditions(device, precision):
            card = Inspection(problem, reference, device, precision).card(roofline)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise lack_of_memory(problem.name, device, error) from error
    release_cache(device)
    disk_cache.put("card", key, asdict(card))
    return card
