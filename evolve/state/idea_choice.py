"""Which of several ideas a child carries out: by what the run believes of their techniques and by what they claim."""

import math
from collections.abc import Sequence
from random import Random

from kbevolve.archive.records import Idea
from kbevolve.evolve.state.normalise import bottleneck_class
from kbevolve.islands.credit.techniques import Experience
from kbevolve.islands.policy import FREE, Policy
from kbevolve.islands.stagnation import Stage

#: Claims: what is assumed where an idea states no gain; the largest that is believed; and the part of it (of its log)
#: that is added to what is believed of the technique. Models promise a factor of 1.3 for nearly everything: a claim
#: should separate ideas of one technique, not outweigh what children have shown.
UNSTATED_GAIN, BELIEVED_GAIN, TRUST = 1.1, 2.0, 0.1
#: Share of the draws that ignore all beliefs while a run explores.
EXPLORING_FLOOR = 0.5
#: Factor on the worth of an idea whose technique is not one of its island's.
STRANGERS = 0.5


def claim(idea: Idea) -> float:
    """The gain that an idea claims (log), limited to `BELIEVED_GAIN`."""
    return math.log(min(idea.expected_gain or UNSTATED_GAIN, BELIEVED_GAIN))


def draw_idea(
    ideas: Sequence[Idea],
    experience: Experience,
    rng: Random,
    *,
    island: int = 0,
    policy: Policy = FREE,
    stage: Stage = Stage.SEARCHING,
) -> Idea:
    """One of the ideas, which are not empty. Runs and simulated searches choose by this function.

    Most draws take the idea that promises most: a draw from the belief about its technique against its bottleneck
    (Thompson sampling), and a part of the gain that it claims. The others, the policy's floor, take the earlier ideas
    more often (weight 1/position), because models name their best first.
    """
    floor = policy.floor if stage is Stage.SEARCHING else max(policy.floor, EXPLORING_FLOOR)
    look = rng.random() >= floor
    blind = rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]
    if not look:
        return blind
    worth = []
    for idea in ideas:
        belief = experience.belief(idea.technique, bottleneck_class(idea.bottleneck), island)
        home = not policy.techniques or idea.technique in policy.techniques
        worth.append((belief.draw(rng) + TRUST * claim(idea)) * (1.0 if home else STRANGERS))
    return ideas[max(range(len(ideas)), key=worth.__getitem__)]
