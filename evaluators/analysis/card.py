"""What kind of problem this is, found out before any kernel is judged by it.

A problem may be easy to cheat (its answer hardly depends on its input), impossible to judge (it is random), or worth
little (it lasts as long as a launch). Such facts are flags of the problem's card, each with its reason; the card also
says what bounds the problem. Making one takes some dozen calls of the reference; it is kept on disk.
"""

from dataclasses import asdict

import torch

from kbevolve.archive.records import ProblemCard
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.conditions import as_judged
from kbevolve.evaluators.analysis.inspection import WEIGHT_SEED, Inspection
from kbevolve.evaluators.analysis.roofline import Roofline, roofline_of
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache

#: What a card says and how: another number makes cards on disk misses.
FORMAT = 1


def card_for(
    problem: Problem, device: Device, precision: str, *, disk_cache: DiskCache | None = None, fresh: bool = False
) -> ProblemCard:
    """The problem's card, from disk when it was made before.

    Args:
        problem: which problem.
        device: where its kernels are judged.
        precision: what the task asks for.
        disk_cache: where cards are kept; the user's own when None.
        fresh: make the card and measure the device again.

    Raises:
        EvaluatorError: the reference fails.
    """
    disk_cache = DiskCache() if disk_cache is None else disk_cache
    known = None if fresh else _known_card(disk_cache, problem, device, precision)
    if known is not None:
        return known
    reference = Reference(problem, device, precision, weight_seed=WEIGHT_SEED)
    roofline = roofline_of(device, disk_cache=disk_cache, fresh=fresh)
    return inspect(problem, reference, device, precision, roofline, disk_cache=disk_cache, fresh=True)


def inspect(
    problem: Problem,
    reference: Reference,
    device: Device,
    precision: str,
    roofline: Roofline | None = None,
    *,
    disk_cache: DiskCache | None = None,
    fresh: bool = False,
) -> ProblemCard:
    """The problem's card; runs the reference unless the card is in the disk cache.

    Args:
        problem: which problem.
        reference: its reference at this precision, with any weights; left as it was.
        device: where the reference is.
        precision: what the task asks for.
        roofline: rates of the device; measured, or taken from the disk cache, when None.
        disk_cache: where cards are kept; the user's own when None.
        fresh: make it again.

    Raises:
        EvaluatorError: the reference fails, or memory is too short to look at it.
    """
    disk_cache = DiskCache() if disk_cache is None else disk_cache
    known = None if fresh else _known_card(disk_cache, problem, device, precision)
    if known is not None:
        return known
    roofline = roofline_of(device, disk_cache=disk_cache) if roofline is None else roofline
    try:
        with as_judged(device, precision):
            card = Inspection(problem, reference, device, precision).card(roofline)
    except torch.OutOfMemoryError:
        raise EvaluatorError(
            f"{problem.name}: not enough memory on {device.description} to look at the problem; use smaller sizes"
        ) from None
    if device.type == "cuda":
        torch.cuda.empty_cache()  # the workers' processes need the memory
    disk_cache.put("card", _key(problem, device, precision), asdict(card))
    return card


def _known_card(disk_cache: DiskCache, problem: Problem, device: Device, precision: str) -> ProblemCard | None:
    tree = disk_cache.get("card", _key(problem, device, precision))
    try:
        return ProblemCard(**tree) if tree else None
    except TypeError:  # not what we wrote
        return None


def _key(problem: Problem, device: Device, precision: str) -> str:
    return f"{problem.id}|{device.fingerprint}|{precision}|{FORMAT}"
