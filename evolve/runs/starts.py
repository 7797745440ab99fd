"""The starting kernels of a run: the problem's own, those that the user gave, and those of torch.compile."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kbevolve.archive.records import Backend, Kernel
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.graph.records import UntraceableError
from kbevolve.evolve.proposers.codegen.languages import named_backends
from kbevolve.evolve.proposers.seeds.cpp.assembly import assembled
from kbevolve.evolve.proposers.seeds.cpp.functions import NotCoveredError
from kbevolve.evolve.proposers.seeds.inductor import CONVOLUTION
from kbevolve.evolve.proposers.seeds.inductor_process import InductorError, InductorProcess
from kbevolve.evolve.proposers.seeds.recurrent import with_recurrent_layers
from kbevolve.evolve.proposers.seeds.replayed import replayed_reference
from kbevolve.evolve.proposers.seeds.seeds import (
    FUSED_WITH_TEMPLATES,
    INDUCTOR,
    RECURRENT,
    REPLAYED,
    TEMPLATES,
    TUNABLE_KERNELS,
    WITH_TEMPLATES,
    GeneratedStarts,
    StartingKernel,
    read_kernel,
    starting_kernels,
)
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.seeds.tunable_kernels import with_tunable_kernels
from kbevolve.evolve.proposers.tuning.tunables import declared
from kbevolve.evolve.state.context import RunContext
from kbevolve.islands.migration import deal

#: What a device's fingerprint holds where split products are offered: their test in tests/gpu passed there.
_SPLIT_DEVICE = "/sm_90/"


def given_starts(settings: Settings) -> tuple[StartingKernel, ...]:
    """The starting kernels that the user gave as files.

    Raises:
        UsageError: a file cannot be read.
    """
    return tuple(
        StartingKernel(kernel=read_kernel(path, option="--start"), note=f"given: {path.name}")
        for path in settings.starts
    )


def new_starts(context: RunContext) -> tuple[StartingKernel, ...]:
    """The starting kernels that need not be generated; none when generation 0 is over."""
    if _is_over(context):
        return ()
    known = (*starting_kernels(context.problem, context.device.type), *_recurrent_starts(context))
    return tuple(start for start in known if _fits(start.kernel, context.settings)) + given_starts(context.settings)


def _recurrent_starts(context: RunContext) -> tuple[StartingKernel, ...]:
    if context.device.type != "cuda" or not takes_templates(context):
        return ()
    source = with_recurrent_layers(context.problem.source_for("cuda"))
    return (StartingKernel(kernel=Kernel.from_source(source), note=RECURRENT),) if source else ()


def _fits(kernel: Kernel, settings: Settings) -> bool:
    """Whether a starting kernel is in a language of the run; the reference is in every one."""
    named = named_backends(settings.search)
    return not named or kernel.backend in (*named, Backend.TORCH)


def takes_templates(context: RunContext) -> bool:
    """Whether templates may give a starting kernel with tunables on the device of a run."""
    device = context.device
    on_device = device.type == "cpu" or _SPLIT_DEVICE in device.fingerprint
    return on_device and context.settings.evaluation.precision == "fp32"


@contextmanager
def inductor_starts(
    context: RunContext,
    starts: Iterable[Iterable[StartingKernel]],
    device: Device | None,
    say: Callable[[str], None],
) -> Iterator[GeneratedStarts | None]:
    """Let torch.compile begin to generate starting kernels; leaving the context ends it.

    Args:
        context: the run.
        starts: the other starting kernels of each island.
        device: as for `InductorProcess`.
        say: shows why there is none to the user.

    Yields:
        A function that waits for the kernels. None when none is wanted, or they are among `starts` already.
    """
    settings = context.settings
    known = any(start.note in (INDUCTOR, REPLAYED) for island in starts for start in island)
    if known or not settings.inductor_seed or _is_over(context):
        yield None
        return
    kind, templates = context.device.type, takes_templates(context)
    precision = settings.evaluation.precision
    on_gpu, on_cpu = templates and kind == "cuda", templates and kind == "cpu"
    with InductorProcess(
        context.problem, kind, precision=precision, device=device, templates=on_gpu, trace=on_cpu
    ) as process:

        def generated() -> tuple[StartingKernel, ...]:
            texts = _from_inductor(context, process, on_gpu, say)
            if process.closed:
                return ()
            if on_cpu:
                texts |= _from_templates(context, process, say)
            kernels = {note: Kernel.from_source(text) for note, text in texts.items() if text}
            return tuple(
                StartingKernel(kernel=kernel, note=note) for note, kernel in kernels.items() if _fits(kernel, settings)
            )

        yield generated


def _from_inductor(
    context: RunContext, process: InductorProcess, templates: bool, say: Callable[[str], None]
) -> dict[str, str]:
    """Files of torch.compile's code by what they are, with templates in the library's place too; "" for one that is
    missing."""
    on_gpu, texts = context.device.type == "cuda", dict[str, str]()
    try:
        texts[INDUCTOR] = source = process.source()
        if templates:
            if process.failure:
                say(f"a starting kernel with templates is missing: {process.failure}")
            changed = process.for_templates() or source
            texts[WITH_TEMPLATES] = with_split_products(changed) or ""
            texts[FUSED_WITH_TEMPLATES] = with_split_products(process.fused() or "") or ""
            if CONVOLUTION not in changed:  # a library's have its favourite layout in torch.compile's own code only
                source = changed
        if on_gpu and not any(map(texts.get, (WITH_TEMPLATES, FUSED_WITH_TEMPLATES))):
            texts[TUNABLE_KERNELS] = with_tunable_kernels(source) or ""
    except InductorError as error:
        if not process.closed:
            say(f"no starting kernel from torch.compile: {error}")
            if on_gpu:
                texts[REPLAYED] = replayed_reference(context.problem.source_for(context.device.type))
    return texts


def _from_templates(context: RunContext, process: InductorProcess, say: Callable[[str], None]) -> dict[str, str]:
    """The file that is put together from the reference's graph, on a CPU; none where no template covers a part."""
    try:
        if (graph := process.graph()) is not None:
            return {TEMPLATES: assembled(graph, context.problem.source_for(context.device.type))}
    except (UntraceableError, NotCoveredError) as error:
        say(f"no starting kernel from templates: {error}")
    return {}


def _is_over(context: RunContext) -> bool:
    """Whether generation 0 is over."""
    return context.view.last_ended() is not None or bool(context.view.last_generation())


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
