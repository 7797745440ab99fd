"""Which of several ideas a child carries out: by what they claim; without claims, by what is believed of techniques."""

import math
from collections.abc import Sequence
from random import Random

from kbevolve.archive.records import Idea
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.normalise import bottleneck_class, same_idea
from kbevolve.islands.credit.posterior import LARGEST_GAIN
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage

#: Share of the draws that ignore all beliefs while a run explores.
EXPLORING_FLOOR = 0.5
#: Children that are taken to have worked before a technique's own: a claim is not dropped for one failure.
WORKED = 4.0
#: Factors on the worth of an idea whose technique is not its island's, and of one that another child carries out.
STRANGERS, TAKEN = 0.5, 0.5


def is_taken(idea: Idea, taken: Sequence[Idea]) -> bool:
    """Whether another child carries out the same idea, perhaps in other words."""
    return any(same_idea(idea.title, other.title) for other in taken)


def draw_idea(
    ideas: Sequence[Idea],
    memory: Memory,
    rng: Random,
    *,
    taken: Sequence[Idea] = (),
    island: int = 0,
    policy: Policy = FREE,
    stage: Stage = Stage.SEARCHING,
) -> Idea:
    """One of the ideas, which are not empty and of one author. Runs and simulated searches choose by this function.

    It is the idea that is worth most: by its claim, times the share of its technique's children that worked. Where an
    idea claims nothing, or larger claims of this author were not followed by larger gains (`islands.credit.claims`), it
    mostly is the one whose technique is worth most against its bottleneck in a draw from what is believed of it
    (Thompson sampling); for the policy's floor it is any, the earlier ones more often (weight 1/position), because
    models name their best first.
    """
    trusted = memory.calibration(ideas[0].proposed_by).trusted
    by_claims = trusted and all(idea.expected_gain is not None for idea in ideas)
    floor = policy.floor if stage is Stage.SEARCHING else max(policy.floor, EXPLORING_FLOOR)
    if not by_claims and rng.random() < floor:
        return rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]
    worth = []
    for idea in ideas:
        belief = memory.experience.belief(idea.technique, bottleneck_class(idea.bottleneck), island)
        if by_claims:
            works = (belief.valid + WORKED) / (belief.children + WORKED)
            gain = works * min(math.log(idea.expected_gain or 1.0), LARGEST_GAIN)
        else:
            gain = belief.draw(rng)
        home = not policy.techniques or idea.technique in policy.techniques
        worth.append(gain * (1.0 if home else STRANGERS) * (TAKEN if is_taken(idea, taken) else 1.0))
    return ideas[max(range(len(ideas)), key=worth.__getitem__)]
