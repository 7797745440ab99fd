"""The proposer that needs no model: other values for the tunables that kernels declare.

It is the whole proposer of an offline run and one operator of an LLM run. A child differs from its parent in a few
values. A posterior draw over the settings of the same skeleton in the brief's history chooses them
(`evolve.proposers.tuning.surrogate`), so a value that helped on one island is tried on the next.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from random import Random

from kbevolve.archive.records import BirthState, Kernel, Operator
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.tuning.constraints import fits
from kbevolve.evolve.proposers.tuning.surrogate import Surrogate
from kbevolve.evolve.proposers.tuning.tunables import Tunable, declared, skeleton, values_of, with_values

#: Candidates for the posterior draw; more would leave no diversity, fewer would waste what was learnt.
CANDIDATES = 24
#: How many values a mutation changes: mostly one, so that credit is clear, sometimes three, to leave a ridge.
CHANGES = (1, 1, 1, 2, 2, 3)
#: Draws of a whole random setting before the space counts as exhausted.
LAST_TRIES = 200


class TunablesProposer:
    """Implements `Proposer` for TUNE (one parent) and CROSS (two parents of one skeleton)."""

    def propose(self, brief: Brief) -> Proposal:
        """A setting of the main parent's tunables that is new to this run; EXHAUSTED when there is none."""
        source, rng = brief.parents[0].kernel.source, brief.rng
        tunables, shape = declared(source), skeleton(source)
        if not tunables:
            return Proposal(state=BirthState.EXHAUSTED, note="the parent declares no tunables")
        used = brief.parents if brief.operator is Operator.CROSS else brief.parents[:1]
        parents = [parent.kernel for parent in used if skeleton(parent.kernel.source) == shape]
        fresh = _unknown(brief, source, _nearby([values_of(parent.source) for parent in parents], tunables, rng))
        if not fresh:
            # The neighbourhood is exhausted: the first new setting anywhere in the space.
            fresh = _unknown(
                brief,
                source,
                ({one.name: rng.choice(one.choices) for one in tunables} for _ in range(LAST_TRIES)),
                limit=1,
            )
        if not fresh:
            return Proposal(state=BirthState.EXHAUSTED, note="every setting near the parent was tried")
        relatives = [member for member in brief.learnt.history if skeleton(member.kernel.source) == shape]
        surrogate = Surrogate(
            {tunable.name: tunable.choices for tunable in tunables},
            [values_of(member.kernel.source) for member in relatives],
            [member.evaluation.timing.speedup or 1.0 for member in relatives],
            rng,
        )
        child, setting = max(fresh, key=lambda candidate: surrogate.score(candidate[1]))
        return Proposal(
            state=BirthState.CREATED,
            kernel=child,
            parents=tuple(parent.id for parent in parents),
            note=_changes(values_of(source), setting),
        )


def _nearby(bases: list[dict[str, str]], tunables: tuple[Tunable, ...], rng: Random) -> list[dict[str, str]]:
    """Mutations of one setting; of two, random mixtures of them and mutations of these."""
    if len(bases) == 1:
        return [_mutated(bases[0], tunables, rng) for _ in range(CANDIDATES)]
    crossed = [{name: rng.choice(bases)[name] for name in bases[0]} for _ in range(CANDIDATES // 2)]
    return crossed + [_mutated(setting, tunables, rng) for setting in crossed]


def _unknown(
    brief: Brief, source: str, settings: Iterable[Mapping[str, str]], *, limit: int | None = None
) -> list[tuple[Kernel, dict[str, str]]]:
    """Kernels with these settings that meet the kernel's conditions and are new to the run, each once."""
    found: dict[str, tuple[Kernel, dict[str, str]]] = {}
    for setting in filter(partial(fits, source), settings):
        kernel = Kernel.from_source(with_values(source, setting))
        if not brief.known(kernel.id):
            found[kernel.id] = (kernel, dict(setting))
            if len(found) == limit:
                break
    return list(found.values())


def _mutated(base: Mapping[str, str], tunables: tuple[Tunable, ...], rng: Random) -> dict[str, str]:
    """`base` with one to three values changed to others of their choices."""
    setting = dict(base)
    for tunable in rng.sample(tunables, min(rng.choice(CHANGES), len(tunables))):
        setting[tunable.name] = rng.choice([choice for choice in tunable.choices if choice != base[tunable.name]])
    return setting


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """e.g. ``UNROLL 1 → 4, PACK 0 → 1``."""
    return ", ".join(f"{name} {before[name]} → {value}" for name, value in after.items() if before.get(name) != value)
