"""The proposer that needs no model: other values for the tunables that kernels declare.

It is the whole proposer of an offline run and one operator of an LLM run. A child has the parent's code. Its values are
those that promise most (`tuning.surrogate`) among mutations of the parent, of the fastest settings of the same
skeleton, and settings at random. So a value that helped on one island is tried on the next. Settings that were fast in
another problem's file of the same template are tried early (`tuning.elsewhere`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from random import Random

from kbevolve.archive.records import BirthState, Kernel, Launch, Operator
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.tuning.constraints import fits, idle
from kbevolve.evolve.proposers.tuning.elsewhere import transferred_samples
from kbevolve.evolve.proposers.tuning.reach import shares
from kbevolve.evolve.proposers.tuning.surrogate import LEAST_SHARE, MOST_FITTED, Sample, Surrogate, chances_to_pass
from kbevolve.evolve.proposers.tuning.tunables import Tunable, declared, skeleton, values_of, with_values
from kbevolve.islands.island import Member, ranked

#: Mutations of the parents, of each of the fastest settings, and settings at random that are compared. Each child draws
#: its own, so that children in flight at once seldom choose the same.
OF_PARENTS, OF_FASTEST, AT_RANDOM = 48, 24, 600
#: How many of the fastest settings are mutated.
FASTEST = 4
#: How many values a mutation changes: mostly one, so that credit is clear, sometimes three, to leave a ridge.
CHANGES = (1, 1, 1, 2, 2, 3)
#: Settings of a skeleton with which a search begins: the fastest of other problems, or else at random, because a fit of
#: fewer follows the chance of what was tried first.
BEGINNING = 8
#: A setting with which a search begins is at least this likely to pass.
LIKELY = 0.5
#: Draws of a whole random setting before the space counts as exhausted.
LAST_TRIES = 200
#: A space of so many settings is looked through for one that was not tried; a larger one lasts for a run.
SMALL_SPACE = 32

Setting = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunablesProposer:
    """Implements `Proposer` for TUNE (one parent) and CROSS (two parents of one skeleton)."""

    #: Whether a setting may be proposed, beside the kernel's own conditions.
    allows: Callable[[Setting], bool] = lambda setting: True
    #: Whether settings at random begin the search of a skeleton: where nothing but tunables changes. What a model has
    #: chosen is a better beginning, and its kernels are tuned a few times only.
    explores: bool = True

    def propose(self, brief: Brief) -> Proposal:
        """A setting of the main parent's tunables that is new to this run; EXHAUSTED when there is none."""
        source, rng = brief.parents[0].kernel.source, brief.rng
        tunables, shape = declared(source), skeleton(source)
        if not tunables:
            return Proposal(state=BirthState.EXHAUSTED, note="the parent declares no tunables")
        used = brief.parents if brief.operator is Operator.CROSS else brief.parents[:1]
        parents = [parent.kernel for parent in used if skeleton(parent.kernel.source) == shape]
        relatives = [member for member in brief.learnt.history if skeleton(member.kernel.source) == shape]
        weights = shares(source, _launches([brief.parents[0], *relatives]))
        samples = [
            Sample(setting=_effective(source, values), speedup=member.evaluation.timing.speedup or 1.0)
            for member in relatives
            for values in [values_of(member.kernel.source)]
        ]
        choices = {one.name: one.choices for one in tunables}
        passed = [member.kernel for member in brief.learnt.history]
        chances = chances_to_pass(
            choices, *(settings_alike(kernels, source) for kernels in (passed, brief.learnt.failed))
        )
        elsewhere = transferred_samples(source, brief.learnt.transfer.settings)
        base = values_of(source)
        drawn = [
            *(_mixed([values_of(parent.source) for parent in parents], tunables, weights, rng)),
            *(base | dict(one.setting) for one in _fastest(elsewhere)),
            *(
                _mutated(base | dict(one.setting), tunables, weights, rng)
                for one in _fastest(samples)
                for _ in range(OF_FASTEST)
            ),
            *(_anywhere(base, tunables, weights, rng) for _ in range(AT_RANDOM)),
        ]
        first = [base | dict(one.setting) for one in _fastest(elsewhere)] or drawn[-AT_RANDOM:]
        begins = len(samples) < BEGINNING and (self.explores or elsewhere)
        early = _legal(source, tunables, first if begins else [], self.allows)
        rng.shuffle(early)  # children in flight at once should differ
        early = [one for one, chance in zip(early, chances(_chosen(early)), strict=True) if chance > LIKELY]

        def ranked() -> Iterator[tuple[Setting, list[str]]]:
            candidates = _legal(source, tunables, drawn, self.allows)
            surrogate = Surrogate(choices, [*samples, *elsewhere], weights)
            scores = surrogate.scores(_chosen(candidates)) * chances(_chosen(candidates))
            yield from (candidates[at] for at in sorted(range(len(candidates)), key=lambda at: -scores[at]))

        # Where all of these are known, the first new setting anywhere in the space.
        last = ([_anywhere(base, tunables, {}, rng)] for _ in range(LAST_TRIES))
        untried = (setting for drawn in last for setting in _legal(source, tunables, drawn, self.allows))
        for setting, _ in chain(early, ranked(), untried):
            child = Kernel.from_source(with_values(source, setting))
            if not brief.known(child.id):
                return Proposal(
                    state=BirthState.CREATED,
                    kernel=child,
                    parents=tuple(parent.id for parent in parents),
                    note=_changes(base, setting),
                )
        return Proposal(state=BirthState.EXHAUSTED, note="every setting near the parent was tried")


def has_untried(source: str, known: Callable[[str], bool]) -> bool:
    """Whether a kernel declares tunables, and has a setting that is new to the run; `known` takes a kernel's id."""
    tunables = declared(source)
    if not tunables or prod(len(one.choices) for one in tunables) > SMALL_SPACE:
        return bool(tunables)
    settings = [
        {one.name: value for one, value in zip(tunables, values, strict=True)}
        for values in product(*(one.choices for one in tunables))
    ]
    legal = (setting for setting, _ in _legal(source, tunables, settings))
    return any(not known(Kernel.from_source(with_values(source, setting)).id) for setting in legal)


def _legal(
    source: str,
    tunables: Sequence[Tunable],
    settings: Sequence[Setting],
    allows: Callable[[Setting], bool] = lambda setting: True,
) -> list[tuple[Setting, list[str]]]:
    """Those that meet the kernel's conditions and `allows`, each once, and the tunables that have an effect in it.

    The others have their first value, so that two settings that run alike are one kernel.
    """
    found: dict[tuple[str, ...], tuple[Setting, list[str]]] = {}
    distinct = {tuple(setting.values()): setting for setting in settings}  # in a small space most are drawn often
    for setting in distinct.values():
        resting = idle(source, setting)
        settled = {one.name: one.choices[0] if one.name in resting else setting[one.name] for one in tunables}
        if fits(source, settled) and allows(settled):
            found[tuple(settled.values())] = settled, [name for name in settled if name not in resting]
    return list(found.values())


def _launches(members: Sequence[Member]) -> Sequence[Launch]:
    """Where the time goes: the parent's profile, else that of its fastest relative with one."""
    profiles = (member.evaluation.profile for member in (members[0], *ranked(members[1:])))
    return next((profile.launches for profile in profiles if profile and profile.launches), ())


def _fastest(samples: Sequence[Sample]) -> Sequence[Sample]:
    return sorted(samples, key=lambda one: -one.speedup)[:FASTEST]


def _mixed(
    bases: Sequence[Setting], tunables: Sequence[Tunable], weights: Mapping[str, float], rng: Random
) -> Iterator[Setting]:
    """Mutations of one setting; of two, random mixtures of them and mutations of these."""
    for number in range(OF_PARENTS):
        setting = {name: rng.choice(bases)[name] for name in bases[0]}
        yield setting if len(bases) > 1 and number % 2 else _mutated(setting, tunables, weights, rng)


def _mutated(base: Setting, tunables: Sequence[Tunable], weights: Mapping[str, float], rng: Random) -> Setting:
    """`base` with one to three values changed; the likelier one, the more of the time it can change."""
    setting = dict(base)
    chances = [max(LEAST_SHARE, weights.get(tunable.name, 1.0)) for tunable in tunables]
    for tunable in rng.choices(tunables, chances, k=rng.choice(CHANGES)):
        setting[tunable.name] = rng.choice([choice for choice in tunable.choices if choice != base[tunable.name]])
    return setting


def _anywhere(base: Setting, tunables: Sequence[Tunable], weights: Mapping[str, float], rng: Random) -> Setting:
    """`base` with values at random where they can change a larger part of the time; all of them without `weights`."""
    most = max(weights.values(), default=1.0)
    setting = dict(base)
    for one in tunables:
        if rng.random() * most < weights.get(one.name, most):
            setting[one.name] = one.choices[int(rng.random() * len(one.choices))]  # faster than rng.choice
    return setting


def _chosen(candidates: Sequence[tuple[Setting, list[str]]]) -> list[Setting]:
    """Of each candidate the values that have an effect, as samples have them."""
    return [{name: setting[name] for name in names} for setting, names in candidates]


def _effective(source: str, setting: Mapping[str, str]) -> Setting:
    """The setting without the tunables that have no effect in it."""
    resting = idle(source, setting)
    return {name: value for name, value in setting.items() if name not in resting}


def settings_alike(kernels: Sequence[Kernel], source: str) -> list[Setting]:
    """Settings of kernels, of the tunables that they declare as this file does; those of its own skeleton last."""
    shape, own = skeleton(source), {one.name: one.choices for one in declared(source)}
    ranked = sorted(kernels, key=lambda kernel: skeleton(kernel.source) == shape)[-MOST_FITTED:]
    found = []
    for text in (kernel.source for kernel in ranked):
        names = [one.name for one in declared(text) if own.get(one.name) == one.choices]
        setting = _effective(text, values_of(text))
        found.append({name: setting[name] for name in names if name in setting})
    return [setting for setting in found if setting]


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """e.g. ``UNROLL 1 → 4, PACK 0 → 1``."""
    return ", ".join(f"{name} {before[name]} → {value}" for name, value in after.items() if before.get(name) != value)
