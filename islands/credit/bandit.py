"""Which way to make the next child: a bandit over operators or techniques, by what each brought."""

from collections.abc import Mapping
from random import Random

from kbevolve.islands.credit.posterior import Belief


def choose(
    beliefs: Mapping[str, Belief],
    rng: Random,
    *,
    shares: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
    floor: float = 0.0,
) -> str:
    """One arm by Thompson sampling: the one whose draw promises most.

    Args:
        beliefs: of each arm; at least one.
        rng: the only source of randomness.
        shares: how the draws that are made without looking at beliefs are spread over the arms; evenly when None.
        costs: what a child of each arm costs, in any unit: what a draw promises is for so much; all the same when None.
        floor: share of the draws that each arm gets whatever is believed of it, at most 1 / arms: a technique that
            failed on the first parents may be the one that the later ones need.

    Raises:
        ValueError: there is no arm.
    """
    if not beliefs:
        raise ValueError("no arm to choose from")
    arms = sorted(beliefs)
    blind = min(1.0, floor * len(arms))
    # Drawn in any case, so that one decision never moves the numbers of another.
    look, lot = rng.random() >= blind, rng.random()
    draws = {arm: beliefs[arm].draw(rng) / (costs or {}).get(arm, 1.0) for arm in arms}
    if look:
        return max(arms, key=draws.__getitem__)
    return _lot(arms, shares or {}, lot)


def _lot(arms: list[str], shares: Mapping[str, float], lot: float) -> str:
    weights = [shares.get(arm, 1.0) for arm in arms]
    at = lot * sum(weights)
    for arm, weight in zip(arms, weights, strict=True):
        at -= weight
        if at < 0:
            return arm
    return arms[-1]
