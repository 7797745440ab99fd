"""Which of several ideas a child carries out: by their claims, as far as the author's claims come true, and by what is
believed of their techniques.
"""

import math
from collections.abc import Sequence
from random import Random

from kbevolve.archive.records import Idea
from kbevolve.evolve.state.memory import Memory
from kbevolve.evolve.state.normalise import alike, bottleneck_class
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
    return any(alike(idea.title, other.title) for other in taken)


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

    It is the idea that promises most: by its claim, as far as the author's claims came true (`islands.credit.claims`),
    and by the share of its technique's children that worked. Where an idea claims nothing, or claims meant nothing so
    far, it mostly is the one whose technique is worth most against its bottleneck in a draw from what is believed of it
    (Thompson sampling); for the policy's floor it is any, the earlier ones more often (weight 1/position), because
    models name their best first.
    """
    calibration = memory.calibration(ideas[0].proposed_by)
    by_claims = calibration.trusted and all(idea.expected_gain is not None for idea in ideas)
    floor = policy.floor if stage is Stage.SEARCHING else max(policy.floor, EXPLORING_FLOOR)
    if not by_claims and rng.random() < floor:
        return rng.choices(ideas, [1 / position for position in range(1, len(ideas) + 1)])[0]
    worth = []
    for idea in ideas:
        belief = memory.experience.belief(idea.technique, bottleneck_class(idea.bottleneck), island)
        works = (belief.valid + WORKED) / (belief.children + WORKED)
        promise = works * calibration.promise(math.log(idea.expected_gain or 1.0))
        home = not policy.techniques or idea.technique in policy.techniques
        factor = (1.0 if home else STRANGERS) * (TAKEN if is_taken(idea, taken) else 1.0)
        worth.append(factor * (promise if by_claims else belief.draw(rng)))
    return ideas[max(range(len(ideas)), key=worth.__getitem__)]
