"""A bandit over operators or techniques, by what each gained."""

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
    """One arm by Thompson sampling: the one with the largest draw.

    Args:
        beliefs: of each arm; at least one.
        rng: the only source of randomness.
        shares: weights of the arms among the draws that ignore beliefs; equal when None.
        costs: of a child of each arm, in any unit; draws are divided by it; equal when None.
        floor: share of the draws that each arm gets without regard to beliefs, at most 1 / arms: a technique that
            failed on the first parents may be right for later ones.

    Raises:
        ValueError: there is no arm.
    """
    if not beliefs:
        raise ValueError("no arm to choose from")
    arms = sorted(beliefs)
    blind = min(1.0, floor * len(arms))
    # Always drawn, so that one decision never shifts the random numbers of another.
    look, lot = rng.random() >= blind, rng.random()
    draws = {arm: beliefs[arm].draw(rng) / (costs or {}).get(arm, 1.0) for arm in arms}
    if look:
        return max(arms, key=draws.__getitem__)
    return _weighted(arms, shares or {}, lot)


def _weighted(arms: list[str], shares: Mapping[str, float], lot: float) -> str:
    weights = [shares.get(arm, 1.0) for arm in arms]
    at = lot * sum(weights)
    for arm, weight in zip(arms, weights, strict=True):
        at -= weight
        if at < 0:
            return arm
    return arms[-1]
