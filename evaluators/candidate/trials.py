"""The correctness gate: calls on inputs of many kinds, each output compared with the truth as a whole."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evaluators.candidate.remote import RemoteKernel
from kbevolve.evaluators.candidate.side_effects import check_conduct
from kbevolve.evaluators.correctness.inputs import Transform, diminished, nominal, signed
from kbevolve.evaluators.correctness.prepared import PreparedProblem, Trial
from kbevolve.evaluators.correctness.truth import accepts, allclose, classify, deviation
from kbevolve.evaluators.feedback.mismatch import describe_mismatch
from kbevolve.evaluators.rejection import Rejection


@dataclass(slots=True)
class Findings:
    """What the trials have found so far about one kernel."""

    found: Evaluation
    #: Milliseconds of the fastest call; the first ones compile, and the next worker's start-up slows others.
    call_ms: float = math.inf
    #: Largest E by what was done to the inputs.
    errors: dict[Transform, float] = field(default_factory=dict)

    def precision_class(self, precision: str) -> str | None:
        """The class that the kernel computes in, whatever the verdict."""
        plain = self.errors.get(nominal, math.inf)
        # Where all products are positive the mean of the answer magnifies every rounding; with signs it does not.
        error = min(plain, self.errors.get(signed, math.inf))
        tiny = self.errors.get(diminished)
        if tiny is not None and plain > 0:
            tiny *= error / plain  # magnified as the nominal error is
        return classify(error, tiny, precision)


def run_trials(remote: RemoteKernel, prepared: PreparedProblem, found: Evaluation) -> tuple[Evaluation, float]:
    """All trials up to the first that fails; also the milliseconds of the fastest call.

    The model is left constructed with the problem's main weights.
    """
    findings = Findings(replace(found, error=0.0, reference_error=0.0, worst_tile=0.0, allclose=True))
    for trial in _in_order(remote, prepared, findings):
        with remote.on_device():
            words = _attempt(remote, prepared, trial, findings)
        if words:
            findings.found = replace(findings.found, verdict=Verdict.WRONG, message=words)
            _look_closer(remote, prepared, findings)
            break
    error = findings.found.error
    return (
        replace(
            findings.found,
            # NaN and infinity are as wrong as can be, by no number.
            error=error if error is not None and math.isfinite(error) else None,
            worst_tile=_finite(findings.found.worst_tile),
            precision_class=findings.precision_class(prepared.precision),
        ),
        findings.call_ms,
    )


def _in_order(remote: RemoteKernel, prepared: PreparedProblem, findings: Findings) -> Iterator[Trial]:
    """The trials, with the right weights in the model when each is due."""
    if prepared.second_weights is not None:
        with remote.on_device():
            remote.construct(prepared.second_weights)
            trial = prepared.second_trial()
        yield trial
        if remote.takes_weights and not _follows_its_weights(remote, prepared):
            findings.found = replace(findings.found, tags=(*findings.found.tags, "prepacked-weights"))
    with remote.on_device():
        remote.construct(prepared.weights)
    for number in range(prepared.trials):
        with remote.on_device():
            trial = prepared.trial(number)
        yield trial


def _follows_its_weights(remote: RemoteKernel, prepared: PreparedProblem) -> bool:
    """Whether weights that change in place change the answer as they must."""
    with remote.on_device():
        trial = prepared.trial(0)
        remote.reweigh(prepared.weights)
        remote.attempt(trial.inputs)
        return accepts(trial.scale, deviation(remote.outputs, trial.answer, trial.scale))


def _attempt(remote: RemoteKernel, prepared: PreparedProblem, trial: Trial, findings: Findings) -> str:
    """One trial; what is wrong, "" when nothing is."""
    call = remote.attempt(trial.inputs)
    findings.call_ms = min(findings.call_ms, call.ms)
    check_conduct(call, prepared)
    outputs = remote.outputs
    seen = deviation(outputs, trial.answer, trial.scale)
    findings.errors[trial.transform] = _worse(findings.errors.get(trial.transform), seen.error)
    found = findings.found
    # KernelBench knows no transformed inputs; its elementwise tolerance rejects honest kernels on them.
    close = allclose(outputs, trial.answer, prepared.precision) if trial.transform is nominal else True
    findings.found = replace(
        found,
        error=_worse(found.error, seen.error),
        worst_tile=_worse(found.worst_tile, seen.worst_tile),
        reference_error=max(found.reference_error or 0.0, trial.scale.reference_error),
        allclose=bool(found.allclose) and close,
    )
    if accepts(trial.scale, seen):
        return ""
    return describe_mismatch(outputs, trial.answer.truth, seen.error, trial.scale.reference_error)


def _look_closer(remote: RemoteKernel, prepared: PreparedProblem, findings: Findings) -> None:
    """Calls that tell the precision of a kernel that failed: whether it computes in TF32 is worth knowing."""
    if not math.isfinite(findings.errors.get(nominal, math.inf)):
        return
    for number in range(prepared.trials):
        with remote.on_device():
            trial = prepared.trial(number)
            if trial.transform in (signed, diminished) and trial.transform not in findings.errors:
                try:
                    remote.attempt(trial.inputs)
                except Rejection:
                    return
                findings.errors[trial.transform] = deviation(remote.outputs, trial.answer, trial.scale).error


def _worse(one: float | None, other: float) -> float:
    # A comparison with NaN is false: what is no number must not be hidden by a number.
    return other if one is None or not other <= one else one


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
