"""The trials of one kernel: calls on inputs of many kinds, each output compared with the fp64 truth as a whole."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kbevolve.archive.records import Evaluation, Verdict, changed
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.candidate.side_effects import check_side_effects
from kbevolve.evaluators.correctness.inputs import Transform, diminished, nominal, signed
from kbevolve.evaluators.correctness.prepared import PreparedProblem, Trial
from kbevolve.evaluators.correctness.truth import accepts, allclose, classify, deviation
from kbevolve.evaluators.feedback.mismatch import describe_mismatch
from kbevolve.evaluators.rejection import Rejection


@dataclass(slots=True)
class TrialResults:
    """The results of the trials of one kernel so far."""

    found: Evaluation
    #: Milliseconds of the fastest call. The first calls compile, and the start of the next worker slows others.
    call_ms: float = math.inf
    #: Largest E by what was done to the inputs.
    errors: dict[Transform, float] = field(default_factory=dict)

    def precision_class(self, precision: str) -> str | None:
        """The class that the kernel computes in, whatever the verdict."""
        plain = self.errors.get(nominal, math.inf)
        # Where all products are positive, the mean of the answer magnifies every rounding; with signs it does not.
        error = min(plain, self.errors.get(signed, math.inf))
        tiny = self.errors.get(diminished)
        if tiny is not None and plain > 0:
            tiny *= error / plain  # scale it as the nominal error was
        return classify(error, tiny, precision)


def run_trials(candidate: CandidateProcess, prepared: PreparedProblem, found: Evaluation) -> tuple[Evaluation, float]:
    """All trials up to the first that fails; also the milliseconds of the fastest call.

    Afterwards the model holds the problem's main weights, as long as no trial failed before.
    """
    results = TrialResults(changed(found, error=0.0, reference_error=0.0, worst_tile=0.0, allclose=True))
    for trial in _in_order(candidate, prepared, results):
        with candidate.on_device():
            mistake = _run_trial(candidate, prepared, trial, results)
        if mistake:
            results.found = replace(results.found, verdict=Verdict.WRONG, message=mistake)
            _measure_precision(candidate, prepared, results)
            break
    return (
        changed(
            results.found,
            error=_finite(results.found.accuracy.error),
            worst_tile=_finite(results.found.accuracy.worst_tile),
            precision_class=results.precision_class(prepared.precision),
        ),
        results.call_ms,
    )


def _in_order(candidate: CandidateProcess, prepared: PreparedProblem, results: TrialResults) -> Iterator[Trial]:
    """The trials, each with its weights in the model."""
    if prepared.second_weights is not None:
        with candidate.on_device():
            candidate.construct(prepared.second_weights)
            trial = prepared.second_trial()
        yield trial
        if candidate.takes_weights and not _follows_its_weights(candidate, prepared):
            results.found = replace(results.found, tags=(*results.found.tags, "prepacked-weights"))
    with candidate.on_device():
        candidate.construct(prepared.weights)
    for number in range(prepared.trials):
        with candidate.on_device():
            trial = prepared.trial(number)
        yield trial


def _follows_its_weights(candidate: CandidateProcess, prepared: PreparedProblem) -> bool:
    """Whether weights that are overwritten in place change the answer as they must."""
    with candidate.on_device():
        trial = prepared.trial(0)
        candidate.overwrite_weights(prepared.weights)
        candidate.trial_call(trial.inputs)
        return accepts(trial.scale, deviation(candidate.outputs, trial.expected, trial.scale))


def _run_trial(candidate: CandidateProcess, prepared: PreparedProblem, trial: Trial, results: TrialResults) -> str:
    """One trial; returns what is wrong with the output, or "" when it is right."""
    call = candidate.trial_call(trial.inputs)
    results.call_ms = min(results.call_ms, call.ms)
    check_side_effects(call, prepared)
    outputs = candidate.outputs
    seen = deviation(outputs, trial.expected, trial.scale)
    results.errors[trial.transform] = _worse(results.errors.get(trial.transform), seen.error)
    found = results.found
    # KernelBench has no transformed inputs; its elementwise tolerance rejects honest kernels on them.
    close = allclose(outputs, trial.expected, prepared.precision) if trial.transform is nominal else True
    results.found = changed(
        found,
        error=_worse(found.accuracy.error, seen.error),
        worst_tile=_worse(found.accuracy.worst_tile, seen.worst_tile),
        reference_error=max(found.accuracy.reference_error or 0.0, trial.scale.reference_error),
        allclose=bool(found.accuracy.allclose) and close,
    )
    if accepts(trial.scale, seen):
        return ""
    return describe_mismatch(outputs, trial.expected.truth, seen.error, trial.scale.reference_error)


def _measure_precision(candidate: CandidateProcess, prepared: PreparedProblem, results: TrialResults) -> None:
    """Calls that show the precision of a kernel that failed: whether it computes in TF32 is worth knowing."""
    if not math.isfinite(results.errors.get(nominal, math.inf)):
        return
    for number in range(prepared.trials):
        with candidate.on_device():
            trial = prepared.trial(number)
            if trial.transform in (signed, diminished) and trial.transform not in results.errors:
                try:
                    candidate.trial_call(trial.inputs)
                except Rejection:
                    return
                results.errors[trial.transform] = deviation(candidate.outputs, trial.expected, trial.scale).error


def _worse(one: float | None, other: float) -> float:
    # A comparison with NaN is false; a number must not hide a NaN.
    return other if one is None or not other <= one else one


def _finite(value: float | None) -> float | None:
    """None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None
