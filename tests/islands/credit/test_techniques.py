"""Credit of techniques: from other problems to this one, to the bottleneck, to the island."""

from kbevolve.islands.credit.posterior import Belief, Tally
from kbevolve.islands.credit.techniques import CARRIED, Experience


def taught(experience: Experience, *children: tuple[str, str, int, float | None], times: int = 1) -> Experience:
    for technique, bottleneck, island, gain in children * times:
        experience = experience.with_child(technique, bottleneck, island, gain)
    return experience


def test_nothing_is_believed_of_an_untried_technique() -> None:
    assert Experience().belief("fusion", "memory", 0) == Belief()
    assert taught(Experience(), ("vectorize", "memory", 0, 0.3)).belief("fusion", "memory", 0) == Belief()


def test_the_general_is_a_start_and_the_particular_refutes_it() -> None:
    elsewhere = {("fusion",): Tally(valid=80, gains=40.0, squares=22.0)}
    given = Experience(elsewhere=elsewhere)
    hopeful = given.belief("fusion", "memory", 0)
    assert hopeful.gain > 0.3
    assert hopeful.children <= CARRIED + 80, "at first it is all that there is"
    refuted = taught(given, ("fusion", "memory", 0, None), times=8).belief("fusion", "memory", 0)
    assert refuted.improvement < 0.3 * hopeful.improvement, "eight children here outweigh eighty elsewhere"


def test_a_pair_learns_from_its_technique_and_an_island_from_the_others() -> None:
    experience = taught(Experience(), ("fusion", "memory", 0, 0.4), times=4)
    own = experience.belief("fusion", "memory", 0)
    neighbour = experience.belief("fusion", "memory", 1)
    other = experience.belief("fusion", "latency", 1)
    assert own.gain >= neighbour.gain > other.gain > 0
    disagreeing = taught(experience, ("fusion", "memory", 1, -0.5), times=6)
    assert disagreeing.belief("fusion", "memory", 1).gain < disagreeing.belief("fusion", "memory", 0).gain
    assert disagreeing.belief("fusion", "memory").children > 0


def test_what_was_learnt_long_ago_fades() -> None:
    early = taught(Experience(), ("fusion", "memory", 0, 0.4), times=5)
    late = taught(early, ("vectorize", "memory", 0, 0.0), times=100)
    assert late.tally("fusion").children < 0.1 * early.tally("fusion").children
    assert late.tally("fusion").mean == early.tally("fusion").mean
    assert early.tally("fusion", "memory").children > 4, "the experience before is what it was"
    assert list(late.pairs()) == [("fusion", "memory"), ("vectorize", "memory")]
