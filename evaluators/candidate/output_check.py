"""Checks the output of every timed call: each has inputs of its own, and its output is compared by a sketch.

The outputs of a hundred calls do not fit into memory. A count sketch of each does, and gives the distance of two
outputs as the outputs themselves would (`correctness.sketch`). The reference runs on the same inputs in the same round,
in its own process, so its output is there to be compared with. Only where a kernel's output differs from it is the fp64
truth computed.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.call import Call
from kbevolve.evaluators.candidate.side_effects import OVERWRITTEN, check_side_effects
from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.inputs import alone, nominal
from kbevolve.evaluators.correctness.lost_elements import describe, is_lossy, lost_share, places_in, sample
from kbevolve.evaluators.correctness.prepared import PreparedProblem
from kbevolve.evaluators.correctness.rule import CAPS
from kbevolve.evaluators.correctness.sketch import Sketch
from kbevolve.evaluators.correctness.truth import scale_of
from kbevolve.evaluators.correctness.weights import Weights
from kbevolve.evaluators.feedback.message import INACCURATE
from kbevolve.evaluators.rejection import Rejection

#: Factor by which a bound is wider than in a trial: a sketch estimates a distance to some percent, and draws differ.
_SLACK = 1.5
#: One of so many draws has a row and a few elements changed, at random.
_CHANGED = 4
#: Up to this many times the accepted error, the message explains the error as rounding that grew on some inputs.
_INACCURATE = 10.0

#: Why a kernel is refused where `evaluation.allow_prepacked` is off.
PREPACKED = "not accepted: it keeps a converted copy of the weights; read the parameters in each call"

#: How the message begins about a kernel that passed its trials.
LATER_WRONG = "correct when it was checked first, not when it was timed"

#: After so many false alarms about lost elements they are not looked at any more: they hold nothing but rounding.
_FALSE_ALARMS = 3

#: Sketches of the tensors of one output, and then a sample of each.
OutputSketch = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedInputs:
    """Inputs of one timed call, the same for all kernels of a round."""

    draw: Draw
    #: None where they are drawn again for each call, because those of a round do not fit into memory side by side.
    tensors: list[torch.Tensor] | None
    #: Seed of the weights that the model gets right before the call (`PreparedProblem.mixed_weights`); None to keep
    #: those that it has.
    weights: int | None = None


class OutputChecker:
    """Draws the inputs of timed calls and compares their outputs; the seeds are the judge's secret."""

    def __init__(self, prepared: PreparedProblem, *, fresh_weights: bool = False, least_cap: float = 0.0) -> None:
        """With `fresh_weights`, each call also has weights of its own, so that none may be prepared before it.

        `least_cap` widens the accepted error as if the task's precision accepted at least this (`rule.CAPS`).
        """
        self._prepared = prepared
        self._slack = _SLACK * max(1.0, least_cap / CAPS[prepared.precision])
        self._fresh_weights = fresh_weights and bool(prepared.second_weights)
        self._sketches = [
            Sketch(place.shape, device=prepared.reference.device, seed=secrets.randbits(62))
            for place in prepared.output_places
        ]
        shapes = [(*place.shape, 2) if "complex" in place.dtype else place.shape for place in prepared.output_places]
        self._places = places_in(shapes, device=prepared.reference.device, seed=secrets.randbits(62))
        self._alarms = 0

    def draw(self) -> TimedInputs:
        """Fresh inputs as the problem draws them; in one draw of four, a row and a few elements are changed."""
        often = self._prepared.allows_changed_rows and not secrets.randbelow(_CHANGED)
        draw = Draw(secrets.randbits(62), alone if often else nominal)
        weights = secrets.randbits(62) if self._fresh_weights else None
        tensors = self._prepared.inputs(draw) if self._prepared.keeps_rounds else None
        return TimedInputs(draw=draw, tensors=tensors, weights=weights)

    def tensors(self, inputs: TimedInputs) -> list[torch.Tensor]:
        """The input tensors of a call."""
        return self._prepared.inputs(inputs.draw) if inputs.tensors is None else inputs.tensors

    def weights(self, inputs: TimedInputs) -> Weights | None:
        """The weights of a call; None for those that the model has."""
        return None if inputs.weights is None else self._prepared.mixed_weights(inputs.weights)

    def sketch(self, outputs: Sequence[torch.Tensor]) -> OutputSketch:
        """What is kept of an output."""
        sketches = [sketch.of(output) for sketch, output in zip(self._sketches, outputs, strict=True)]
        return (*sketches, *sample(outputs, self._places))

    def check(self, inputs: TimedInputs, call: Call, output: OutputSketch, reference: OutputSketch) -> None:
        """Check one timed call; `reference` is the reference's output on the same inputs.

        Raises:
            Rejection: the output is wrong, or the call did what no call may do.
        """
        check_side_effects(call, self._prepared)
        scale, count = self._prepared.nominal_scale, len(self._sketches)
        samples = output[count:], reference[count:], reference[count:]
        alarmed = self._alarms < _FALSE_ALARMS and is_lossy(lost_share(*samples))
        close = self._error(output, reference, scale.spread) <= self._slack * scale.bound + scale.reference_error
        if close and not alarmed:
            return
        weights = self.weights(inputs)
        expected = self._prepared.solve(inputs.draw, weights)[1]
        means = self._prepared.nominal_means if weights is None else [None] * len(expected.truth)
        own = scale_of(expected, means, self._prepared.precision)
        error = self._error(output, self.sketch(expected.truth), own.spread)
        if error <= self._slack * own.bound:
            right, own_output = (sample(tensors, self._places) for tensors in (expected.truth, expected.reference))
            lost = lost_share(output[count:], right, own_output) if alarmed else 0.0
            if is_lossy(lost):
                raise Rejection(Verdict.WRONG, f"{LATER_WRONG}: {describe(lost)}")
            self._alarms += alarmed
            return
        numbers = (
            f"relative error {error:.2g} against fp64, limit {self._slack * own.bound:.2g} (the reference: "
            f"{own.reference_error:.2g})"
        )
        if error <= _INACCURATE * own.bound:
            raise Rejection(
                Verdict.WRONG,
                f"{INACCURATE} on some of the inputs it was timed on: {numbers}; add up long sums in pieces, or "
                "with more than one accumulator",
            )
        if weights is not None:
            raise Rejection(Verdict.REFUSED, f"{PREPACKED}: {numbers}")
        raise Rejection(
            Verdict.WRONG,
            f"{LATER_WRONG}: {numbers}; compute each output from the inputs "
            "of its own call, and finish before forward() returns",
        )

    def check_kept(self, outputs: Sequence[torch.Tensor], before: OutputSketch) -> None:
        """Check what an earlier call returned, read again; `before` is what it was then.

        Raises:
            Rejection: it has changed, and is no memory of the inputs.
        """
        scale, count = self._prepared.nominal_scale, self._prepared.returned
        now = self.sketch(outputs)
        changed = self._error(now[:count], before[:count], scale.spread[:count]) > self._slack * scale.bound
        if changed and not any(self._prepared.aliasing):
            raise Rejection(Verdict.WRONG, OVERWRITTEN)

    def _error(self, output: OutputSketch, right: OutputSketch, spread: Sequence[float]) -> float:
        """Largest centred relative error over the tensors; infinite where one of them is NaN."""
        errors = [
            sketch.distance(mine, theirs) / (scale or 1.0)
            for sketch, mine, theirs, scale in zip(self._sketches, output, right, spread, strict=False)
        ]
        return max((math.inf if math.isnan(error) else error for error in errors), default=0.0)
