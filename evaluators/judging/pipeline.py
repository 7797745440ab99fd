"""One kernel through the judge: lint, build, trials, timing, profile. The first step that fails ends it."""

import math
import platform
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random

from kbevolve.archive.records import Evaluation, Execution, Kernel, LaunchCost, Verdict, changed
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.roofline import roofline_of
from kbevolve.evaluators.builds.resources import completed, merged
from kbevolve.evaluators.builds.traits import merged_traits
from kbevolve.evaluators.candidate.output_check import PREPACKED
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.candidate.side_effects import leaks_threads
from kbevolve.evaluators.candidate.trials import OWN_NAMES, PREPACKED_TAG, check_weights_again, run_trials
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.correctness.rule import SLACK
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import names_lack_of_memory
from kbevolve.evaluators.feedback.profile import read_profile
from kbevolve.evaluators.judging.context import JudgeContext, ProblemContext
from kbevolve.evaluators.judging.library_use import check_library_use
from kbevolve.evaluators.judging.paired_timing import (
    KERNEL,
    REFERENCE,
    Round,
    disturbs,
    is_clearly_slow,
    log_ratios,
    measurements,
    time_beside_reference,
    time_ms,
)
from kbevolve.evaluators.judging.phases import Phases
from kbevolve.evaluators.lint.streams import may_use_several
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.timing.baselines import best, over_best, recall
from kbevolve.evaluators.timing.clock import ClocksDisagree
from kbevolve.evaluators.timing.statistics import comparison_of, speedup_of

#: Kernels this close to the best one here are profiled: the profiler takes up to a second, and only parents need it.
_WORTH_PROFILING = 0.9
#: Tag of a kernel whose times got a penalty (`timing.clock.penalty_ms`), or that was refused for unreported time.
UNREPORTED = "unreported-time"
#: Tag of a kernel beside which the reference was slower than alone (`paired_timing.disturbs`).
PENDING_WORK = "pending-work"


def empty_evaluation(problem: Problem, kernel: Kernel, device: Device, precision: str) -> Evaluation:
    """An evaluation before its first step."""
    return Evaluation(
        kernel=kernel.id,
        problem=problem.id,
        device=device.fingerprint,
        precision=precision,
        verdict=Verdict.CORRECT,
        execution=Execution(started_at=time.time(), device_instance=f"{platform.node()}/{device.torch_name}"),
    )


def rejected(found: Evaluation, failure: Rejection) -> Evaluation:
    """The evaluation of a kernel that failed."""
    return replace(found, verdict=failure.verdict, message=failure.message, tags=failure.tags or found.tags)


def check_source(problem: Problem, kernel: Kernel, found: Evaluation, judge: JudgeContext) -> Evaluation:
    """Add the tags of the source. Refuse a file that is not Python, or that the lint refuses."""
    finding = judge.lint.lint(
        kernel.source,
        allow_library=judge.settings.allow_library,
        allow_unreadable=judge.settings.allow_unreadable,
        reference_source=problem.source_for(judge.device.type),
    )
    if finding.refusal:
        raise Rejection(Verdict.REFUSED, finding.refusal, tags=finding.tags)
    return replace(found, tags=finding.tags)


def check_problem(context: ProblemContext, found: Evaluation) -> Evaluation:
    """Add the tags of the problem and its card. Refuse a degenerate problem, unless the settings force it."""
    found = replace(found, tags=(*found.tags, *dict.fromkeys((*context.prepared.tags, *context.card.flags))))
    why = context.prepared.degenerate or context.card.flags.get("degenerate", "")
    if why and not context.judge.settings.force:
        raise Rejection(
            Verdict.REFUSED,
            f"the problem is degenerate: {why}; change its inputs or sizes, or evaluate it nevertheless with --force",
            tags=found.tags,
        )
    if "random" in context.card.flags and not context.judge.settings.force:
        raise Rejection(
            Verdict.REFUSED,
            f"the problem is random: {context.card.flags['random']}; draw the numbers in get_inputs(), or evaluate it "
            "nevertheless with --force",
            tags=found.tags,
        )
    return found


def evaluate_in_process(context: ProblemContext, kernel: Kernel, found: Evaluation, phases: Phases) -> Evaluation:
    """Every step that needs a process for the kernel.

    Raises:
        Rejection: the kernel failed.
        EvaluatorError: the reference did, or no worker can be started.
    """
    with phases("worker"):
        candidate = context.start(kernel.source, one_stream=not may_use_several(kernel.source, found.tags))
    initial = found
    rounds: list[Round] = []
    try:
        worker = candidate.worker
        worker.deadline = time.monotonic() + context.judge.settings.total_seconds
        found = changed(found, sandbox=worker.sandbox)
        build(candidate, phases)
        built_alone = worker.built_alone
        binary_hash = context.binaries.hash_of(kernel.source, worker.built, built_alone=built_alone)
        found = changed(found, binary_hash=binary_hash)
        if (known := context.binaries.verdict(found)) is not None:
            return known
        found, kernel_ms = try_kernel(context.judge, context.prepared, candidate, found, phases, memory=context.memory)
        if found.verdict < Verdict.CORRECT:
            return found
        if not built_alone:  # the judge has seen all compiled code
            reported = candidate.traits() if context.device.type == "cuda" else None
            found = changed(found, traits=merged_traits(worker.built, reported))
        with phases("timing"):
            rounds = time_beside_reference(context, candidate, kernel_ms, found.accuracy.precision_class)
            found = check_weights_again(candidate, context.prepared, found)
        found = _profiled(context, candidate, _timed(context, rounds, found), phases)
        worker.check_holdings()  # calls of a few milliseconds end before the next look
        if worker.processes > 1:
            found = replace(found, tags=(*found.tags, "leaked-processes"))
    except ClocksDisagree as failure:
        return replace(initial, verdict=failure.verdict, message=failure.message, tags=(*found.tags, UNREPORTED))
    except Rejection as failure:
        raise Rejection(failure.verdict, failure.message, tags=failure.tags or found.tags) from None
    finally:
        with phases("cleanup"):
            candidate.close()
    if disturbs(context, rounds):
        return replace(
            initial,
            verdict=Verdict.REFUSED,
            message="not accepted: its work was still on the device after its calls; finish all work before forward() "
            "returns",
            tags=(*found.tags, PENDING_WORK),
        )
    context.best_speedup = max(context.best_speedup, found.timing.speedup_low or 0.0)
    if found.timing.speedup and not is_doubtful(found):  # a disturbed one says nothing about other processes
        context.judge.repeatability.add(found.problem, found.kernel, found.timing.speedup)
    return found


def is_doubtful(found: Evaluation) -> bool:
    """Whether a busy machine can explain what the judge saw. Then the kernel is evaluated in another process."""
    return UNREPORTED in found.tags or PENDING_WORK in found.tags


def lacked_memory(found: Evaluation) -> bool:
    """Whether a kernel found no memory. Beside other kernels that is not its fault."""
    return found.verdict is not Verdict.CORRECT and names_lack_of_memory(found.message)


def build(candidate: CandidateProcess, phases: Phases) -> None:
    """Import a kernel, which builds what it asks for; Rejection when that fails.

    Importing large libraries takes seconds, for which no other kernel waits.
    """
    with phases("build"), candidate.in_background():
        candidate.load()


def try_kernel(
    judge: JudgeContext,
    prepared: PreparedProblem,
    candidate: CandidateProcess,
    found: Evaluation,
    phases: Phases,
    *,
    memory: AbstractContextManager[object] | None = None,
) -> tuple[Evaluation, float]:
    """The trials of a kernel that is built; also the milliseconds of its fastest call.

    `memory` is entered before the kernel gets memory, and left when its process is closed; None where memory suffices.
    """
    if memory is not None:
        with phases("memory wait"):
            started = time.monotonic()
            candidate.held.enter_context(memory)
            candidate.worker.deadline += time.monotonic() - started  # others use the memory: not the kernel's fault
    with phases("trials"):
        with candidate.on_device():
            candidate.allocate()
        found, kernel_ms = run_trials(candidate, prepared, found)
    if found.verdict is Verdict.CORRECT:
        found = check_library_use(candidate, prepared, found, judge.settings.allow_library)
    if not judge.settings.allow_prepacked:
        if PREPACKED_TAG in found.tags:
            raise Rejection(Verdict.REFUSED, PREPACKED, tags=found.tags)
        if OWN_NAMES in found.tags:
            raise Rejection(
                Verdict.REFUSED,
                "not accepted: its parameters and buffers have other names or shapes than the reference's, so nothing "
                "shows that it reads them in each call; name them as the reference does",
                tags=found.tags,
            )
    return found, kernel_ms


def check_contestant(
    judge: JudgeContext, prepared: PreparedProblem, candidate: CandidateProcess, kernel: Kernel
) -> tuple[Evaluation, float]:
    """All steps before the timing, for a kernel that is judged alone; also the milliseconds of its fastest call."""
    problem = prepared.problem
    found = empty_evaluation(problem, kernel, judge.device, judge.settings.precision)
    found = changed(found, sandbox=candidate.worker.sandbox)
    candidate.worker.deadline = time.monotonic() + judge.settings.total_seconds
    try:
        found = check_source(problem, kernel, found, judge)
        phases = Phases(judge.gate)
        build(candidate, phases)
        return try_kernel(judge, prepared, candidate, found, phases)
    except Rejection as failure:
        return rejected(found, failure), math.inf
    finally:
        candidate.worker.deadline = math.inf  # now it waits for the other kernels


def _timed(context: ProblemContext, rounds: list[Round], found: Evaluation) -> Evaluation:
    """The evaluation with the numbers of its rounds."""
    judge, ratios = context.judge, log_ratios(rounds, KERNEL)
    # The kernel's id is the seed, so that the archived blocks give the same interval again.
    speedup = speedup_of(ratios, Random(found.kernel))
    known = recall(judge.disk_cache, problem=found.problem, device=judge.device, precision=judge.settings.precision)
    kernel_ms = time_ms(rounds, KERNEL)
    tags = {
        "clearly-slow": is_clearly_slow(ratios, context.best_speedup),
        "leaked-threads": any(leaks_threads(call) for blocks in rounds for call in blocks[KERNEL].calls),
        UNREPORTED: any(blocks[KERNEL].penalty_ms for blocks in rounds),
        "less-accurate": (found.accuracy.over_reference or 0.0) > SLACK,
        "beyond-roofline": context.is_beyond_roofline(kernel_ms, found.accuracy.precision_class),
    }
    return changed(
        found,
        time_ms=kernel_ms,
        reference_ms=time_ms(rounds, REFERENCE),
        speedup=speedup.estimate,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        comparison=comparison_of(speedup.low, speedup.high, judge.repeatability.tie(found.problem)),
        speedup_best=over_best(speedup.estimate, known) if known else None,
        best_baseline=best(known).name if known else None,
        tags=(*found.tags, *(tag for tag, holds in tags.items() if holds)),
        blocks=tuple(measurements(rounds)),
    )


def _profiled(context: ProblemContext, candidate: CandidateProcess, found: Evaluation, phases: Phases) -> Evaluation:
    """The evaluation with a profile, if the kernel may become a parent."""
    worth = (found.timing.speedup_low or 0.0) >= _WORTH_PROFILING * context.best_speedup
    if not context.judge.settings.profile or not worth or found.timing.time_ms is None:
        return found
    with phases("profile"):
        cost = _launch_cost(context, candidate)  # first, because the profiler makes launches slower
        try:
            with candidate.on_device():
                launches = candidate.profile(context.prepared.first_inputs())
        except Rejection:  # the verdict and the times are valid; only the feedback is shorter
            return found
    roofline = roofline_of(context.device, disk_cache=context.judge.disk_cache)
    with reading_a_reply():
        profile = read_profile(
            launches,
            time_ms=found.timing.time_ms,
            card=context.card,
            precision_class=found.accuracy.precision_class,
            roofline=roofline,
            launch_cost=cost,
        )
    kernels = merged(build.resources for build in candidate.worker.built)
    return replace(found, profile=completed(profile, kernels))


def _launch_cost(context: ProblemContext, candidate: CandidateProcess) -> LaunchCost | None:
    """What it costs to launch a call, beside the reference; None where either is not known."""
    reference = context.reference_cost
    own = context.launch_cost(candidate) if reference else None
    if reference is None or own is None:
        return None
    return LaunchCost(
        host_ms=own.host_ms,
        reference_host_ms=reference.host_ms,
        kernelbench_ms=own.kernelbench_ms,
        kernelbench_reference_ms=reference.kernelbench_ms,
        kernelbench_speedup=reference.kernelbench_ms / own.kernelbench_ms,
    )
