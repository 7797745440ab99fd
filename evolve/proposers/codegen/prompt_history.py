"""What the run has learnt, as lines of a prompt: what helped and what did not."""

from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.knowledge import IdeaOutcome
from kbevolve.evolve.state.lessons import pair_words, percent
from kbevolve.evolve.state.normalise import first_line, signature

#: Most lines of each kind: failures, tried ideas (the newest), techniques.
SHOWN_FAILURES, SHOWN_TRIED, SHOWN_TECHNIQUES = 5, 20, 10


def failure_lines(brief: Brief) -> list[str]:
    """The island's recent failures, one line per signature, the newest first, with how often the run had it."""
    kinds: dict[str, list[Failure]] = {}
    for failure in brief.learnt.failures:
        kinds.setdefault(signature(failure.evaluation), []).append(failure)
    lines = []
    for kind, failures in list(kinds.items())[:SHOWN_FAILURES]:
        count = max(brief.learnt.memory.failures.get(kind, 0), len(failures))
        idea = f" (idea: {failures[0].idea.title})" if failures[0].idea else ""
        times = f"tried {count}x: " if count > 1 else ""
        lines.append(f"{times}{first_line(failures[0].evaluation)}{idea}")
    return lines


def tried_lines(brief: Brief) -> list[str]:
    """The newest ideas with the best result of each, without those of `exhausted_lines`."""
    outcomes = [one for one in brief.learnt.memory.outcomes.values() if not one.exhausted]
    return [_tried(outcome) for outcome in outcomes[-SHOWN_TRIED:]]


def exhausted_lines(brief: Brief) -> list[str]:
    """Ideas that are not worth another try, and why."""
    return [f"{one.idea.title} ({one.idea.technique}): {one.exhausted}" for one in brief.learnt.memory.exhausted()]


def technique_lines(brief: Brief) -> list[str]:
    """The results of each technique against each bottleneck, the most promising first."""
    experience = brief.learnt.memory.experience
    worth = {pair: experience.belief(*pair, brief.island.number) for pair in experience.pairs()}
    ranked = sorted(worth, key=lambda pair: (-worth[pair].improvement, pair))
    lines = []
    for pair in ranked[:SHOWN_TECHNIQUES]:
        belief, worked = worth[pair], experience.tally(*pair).valid > 0
        those = f", those to change the speed by {percent(belief.gain)}" if worked else "; none has yet"
        lines.append(f"{pair_words(pair)}: {belief.validity:.0%} of its kernels are expected to work{those}")
    return lines


def lesson_lines(brief: Brief) -> list[str]:
    """Lessons from the children of the run."""
    return [lesson.line for lesson in brief.learnt.memory.lessons]


def elsewhere_lines(brief: Brief) -> list[str]:
    """Ideas that helped on similar problems."""
    return [
        f"{one.title} ({one.technique}) on {one.problem}: {one.gain:.2f} times its parent's speed"
        for one in brief.learnt.transfer.ideas
    ]


def _tried(outcome: IdeaOutcome) -> str:
    if outcome.gain is not None:
        result = f"{outcome.gain.factor:.2f} times its parent's speed"
    elif outcome.failures:
        result = f"no working kernel yet ({next(iter(outcome.failures.values()))})"
    else:
        result = "no working kernel"
    return f"{outcome.idea.title} ({outcome.idea.technique}): {result}"
