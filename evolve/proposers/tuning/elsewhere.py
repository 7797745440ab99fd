"""Settings of the same template that were measured on other problems, for the tuner of this one."""

from collections.abc import Sequence

from kbevolve.evolve.proposers.tuning.reach import templates
from kbevolve.evolve.proposers.tuning.surrogate import Sample
from kbevolve.evolve.proposers.tuning.tunables import skeleton, values_of
from kbevolve.evolve.state.transfer import TransferredSetting


def transferred_samples(source: str, settings: Sequence[TransferredSetting]) -> list[Sample]:
    """What is known elsewhere of the tunables of a kernel: values of those that come from the same template.

    The other tunables have the kernel's own values, because the template's are worth most beside what is there now.
    """
    own, values = templates(source), values_of(source)
    samples = []
    for one in settings:
        theirs, known = templates(one.source), values_of(one.source)
        shared = {name: known[name] for name, template in own.items() if theirs.get(name) == template}
        if shared:
            # Each skeleton has a level of its own, with which the surrogate does not compare others.
            level = f"{one.problem}/{skeleton(one.source)}"
            samples.append(Sample(setting=values | shared, speedup=one.speedup, problem=level, closeness=one.closeness))
    return samples
