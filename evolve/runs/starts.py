"""The starting kernels of a run: the problem's own, and those that the user gave."""

from collections.abc import Callable, Iterable

from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel, read_kernel, starting_kernels
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.state.context import RunContext
from kbevolve.islands.migration import deal


def given_starts(settings: Settings) -> tuple[StartingKernel, ...]:
    """The starting kernels that the user gave as files.

    Raises:
        UsageError: a file cannot be read.
    """
    return tuple(
        StartingKernel(kernel=read_kernel(path, option="--start"), note=f"given: {path.name}")
        for path in settings.starts
    )


def new_starts(context: RunContext, say: Callable[[str], None]) -> tuple[StartingKernel, ...]:
    """The starting kernels; none when generation 0 is over, because Inductor takes seconds to generate its own."""
    if context.view.last_generation():
        return ()
    settings = context.settings
    found = starting_kernels(
        context.problem,
        context.device.type,
        inductor=settings.inductor_seed,
        precision=settings.evaluation.precision,
        say=say,
    )
    return found + given_starts(settings)


def recorded_starts(context: RunContext) -> list[list[StartingKernel]]:
    """The starting kernels of each island, from the archive: torch.compile may give none without the device."""
    starts: list[list[StartingKernel]] = [[] for _ in range(context.settings.search.islands)]
    for birth in context.view.births(0):
        if birth.kernel is not None:
            starts[birth.island].append(StartingKernel(kernel=context.view.kernel(birth.kernel), note=birth.note))
    return starts


def dealt(starts: Iterable[StartingKernel], islands: int) -> list[list[StartingKernel]]:
    """Starting kernels of each island: those with tunables are dealt in turn, the others go to every island."""
    starts = list(starts)
    tunable = [start for start in starts if declared(start.kernel.source)]
    return deal([start for start in starts if start not in tunable], tunable, islands)
