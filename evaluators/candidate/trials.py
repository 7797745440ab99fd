"""The trials of one kernel: calls on inputs of many kinds, each output compared with the fp64 truth as a whole."""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from kbevolve.archive.records import Evaluation, Verdict, changed
from kbevolve.evaluators.candidate.process import CandidateProcess
from kbevolve.evaluators.candidate.side_effects import OVERWRITTEN, check_side_effects
from kbevolve.evaluators.correctness.inputs import Distribution, describe_kind, diminished, nominal, signed
from kbevolve.evaluators.correctness.kept import Trial
from kbevolve.evaluators.correctness.lost_elements import describe, is_lossy, lost_share, places_in, sample
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.correctness.truth import (
    Deviation,
    ExpectedOutput,
    accepts,
    allclose,
    as_real,
    classify,
    deviation,
)
from kbevolve.evaluators.correctness.weights import Weights
from kbevolve.evaluators.feedback.mismatch import Mismatch
from kbevolve.evaluators.rejection import Rejection

#: Tags of what a kernel does with its weights.
PREPACKED_TAG = "prepacked-weights"
OWN_NAMES = "own-weight-names"
#: Kinds of inputs named as accepted, in the message on a kernel that fails on another.
_SHOWN_KINDS = 3


@dataclass(slots=True)
class TrialResults:
    """The results of the trials of one kernel so far."""

    found: Evaluation
    #: Milliseconds of the fastest call. The first calls compile, and the start of the next worker slows others.
    call_ms: float = math.inf
    #: Largest E by what was done to the inputs.
    errors: dict[Distribution, float] = field(default_factory=dict)

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
    # The output of one call is read again after the last: a user keeps answers.
    last = prepared.trials - 1 + bool(prepared.second_weights)
    early = max(1, (prepared.trials - 1) // 2)  # so that some buffers that are used in turn are written again, too
    kept_call = secrets.randbelow(early) + last + 1 - prepared.trials if prepared.trials > 1 else -1
    kept: Callable[[], Trial] | None = None
    mistake = ""
    for number, trial in enumerate(_in_order(candidate, prepared, results)):
        with candidate.in_trial():
            mistake = _run_trial(candidate, prepared, trial(), results, keep=number == kept_call)
        kept = trial if number == kept_call else kept
        if mistake:
            break
    if kept is not None and not mistake:
        with candidate.in_trial():
            mistake = _reread(candidate, prepared, kept())
    with candidate.on_device():
        if candidate.takes_weights and not mistake:
            mistake = _state_mistake(candidate, prepared)
    if mistake:
        results.found = replace(results.found, verdict=Verdict.WRONG, message=mistake)
        _measure_precision(candidate, prepared, results)
    return (
        changed(
            results.found,
            error=_finite(results.found.accuracy.error),
            worst_tile=_finite(results.found.accuracy.worst_tile),
            precision_class=results.precision_class(prepared.precision),
        ),
        results.call_ms,
    )


def _in_order(
    candidate: CandidateProcess, prepared: PreparedProblem, results: TrialResults
) -> Iterator[Callable[[], Trial]]:
    """The trials, each with its weights in the model. What a function makes may use the device."""
    if prepared.second_weights:
        with candidate.on_device():
            candidate.construct(prepared.second_weights[0])
            candidate.compile_now()
        # Without weights by name it knows nothing but the seed, which is that of the last, too.
        yield partial(prepared.second_trial, 0 if candidate.takes_weights else -1)
        if not candidate.takes_weights:
            results.found = replace(results.found, tags=(*results.found.tags, OWN_NAMES))
        elif not _follows(candidate, prepared.weights, lambda: prepared.trial(0)):
            results.found = replace(results.found, tags=(*results.found.tags, PREPACKED_TAG))
    with candidate.on_device():
        candidate.construct(prepared.weights)
        candidate.compile_now()
    for number in range(prepared.trials):
        yield partial(prepared.trial, number)


def check_weights_again(candidate: CandidateProcess, prepared: PreparedProblem, found: Evaluation) -> Evaluation:
    """The evaluation with the tag of a kernel that packed its weights only after some calls."""
    if not candidate.takes_weights or PREPACKED_TAG in found.tags:
        return found
    follows = _follows(candidate, prepared.second_weights[0], lambda: prepared.second_trial(0))
    return found if follows else replace(found, tags=(*found.tags, PREPACKED_TAG))


def _follows(candidate: CandidateProcess, weights: Weights, with_them: Callable[[], Trial]) -> bool:
    """Whether weights that are overwritten in place change the answer as they must; `with_them` may use the device."""
    with candidate.in_trial():
        trial = with_them()
        candidate.overwrite_weights(weights)
        candidate.trial_call(trial.inputs)
        return accepts(trial.scale, deviation(candidate.outputs, trial.expected, trial.scale))


def _state_mistake(candidate: CandidateProcess, prepared: PreparedProblem) -> str:
    """What the calls did to the model's own state that the reference does not; "" for nothing."""
    if not (names := candidate.changed_state(prepared.weights)):
        return ""
    what = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"forward() changed {what}, which the reference leaves as they were; keep results in attributes of your own"


def _reread(candidate: CandidateProcess, prepared: PreparedProblem, kept: Trial) -> str:
    """What is wrong with the output of an earlier call now, or "" when it is as right as it was."""
    candidate.read_again()
    count = prepared.returned  # what the call wrote to inputs and state may change with the next one
    expected = kept.expected.of_first(count)
    scale = kept.scale.of_first(count)
    if accepts(scale, deviation(candidate.outputs[:count], expected, scale)):
        return ""
    return OVERWRITTEN


def _run_trial(
    candidate: CandidateProcess, prepared: PreparedProblem, trial: Trial, results: TrialResults, *, keep: bool
) -> str:
    """One trial; returns what is wrong with the output, or "" when it is right."""
    call = candidate.trial_call(trial.inputs, keep=keep)
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
        lost = _lost(outputs, trial.expected) if trial.transform is nominal else 0.0
        return describe(lost) if is_lossy(lost) else ""
    return _describe(candidate, prepared, trial, seen, results.errors)


def _lost(outputs: Sequence[torch.Tensor], expected: ExpectedOutput) -> float:
    shapes = [as_real(tensor).shape for tensor in expected.truth]
    places = places_in(shapes, device=expected.truth[0].device, seed=secrets.randbits(62))
    return lost_share(*(sample(tensors, places) for tensors in (outputs, expected.truth, expected.reference)))


def _describe(
    candidate: CandidateProcess,
    prepared: PreparedProblem,
    trial: Trial,
    seen: Deviation,
    errors: Mapping[Distribution, float],
) -> str:
    """What is wrong with the output of a trial; it is compared with that of a second call on the same inputs."""
    expected = trial.expected
    comparable = expected.comparable(candidate.outputs)
    mismatch = Mismatch(comparable, expected.truth, seen, trial.scale, names=prepared.output_names)
    before = {describe_kind(kind): error for kind, error in errors.items() if kind is not trial.transform}
    text = mismatch.text(describe_kind(trial.transform, trial.inputs), dict(list(before.items())[:_SHOWN_KINDS]))
    try:
        candidate.trial_call(trial.inputs)
    except Rejection:
        return f"{text}\nA second call on the same inputs failed."
    return f"{text}\n{mismatch.beside(expected.comparable(candidate.outputs), expected.truth)}".rstrip()


def _measure_precision(candidate: CandidateProcess, prepared: PreparedProblem, results: TrialResults) -> None:
    """Calls that show the precision of a kernel that failed: whether it computes in TF32 is worth knowing."""
    if not math.isfinite(results.errors.get(nominal, math.inf)):
        return
    for number in range(prepared.trials):
        with candidate.in_trial():
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
