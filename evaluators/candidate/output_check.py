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
from kbevolve.evaluators.candidate.process import Call
from kbevolve.evaluators.candidate.side_effects import check_side_effects
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.prepared import Draw, PreparedProblem
from kbevolve.evaluators.correctness.sketch import Sketch
from kbevolve.evaluators.correctness.truth import scale_of
from kbevolve.evaluators.rejection import Rejection

#: Factor by which a bound is wider than in a trial: a sketch estimates a distance to some percent, and draws differ.
_SLACK = 1.5
#: Up to this many times the accepted error, the message explains the error as rounding that grew on some inputs.
_INACCURATE = 10.0

#: Sketches of the tensors of one output.
OutputSketch = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedInputs:
    """Inputs of one timed call, the same for all kernels of a round."""

    draw: Draw
    tensors: list[torch.Tensor]


class OutputChecker:
    """Draws the inputs of timed calls and compares their outputs; the seeds are the judge's secret."""

    def __init__(self, prepared: PreparedProblem) -> None:
        self._prepared = prepared
        self._sketches = [
            Sketch(place.shape, device=prepared.reference.device, seed=secrets.randbits(62))
            for place in prepared.output_places
        ]

    def draw(self) -> TimedInputs:
        """Fresh inputs as the problem draws them."""
        draw = Draw(secrets.randbits(62), nominal)
        return TimedInputs(draw=draw, tensors=self._prepared.inputs(draw))

    def sketch(self, outputs: Sequence[torch.Tensor]) -> OutputSketch:
        """What is kept of an output."""
        return tuple(sketch.of(output) for sketch, output in zip(self._sketches, outputs, strict=True))

    def check(self, inputs: TimedInputs, call: Call, output: OutputSketch, reference: OutputSketch) -> None:
        """Check one timed call; `reference` is the reference's output on the same inputs.

        Raises:
            Rejection: the output is wrong, or the call did what no call may do.
        """
        check_side_effects(call, self._prepared)
        scale = self._prepared.nominal_scale
        if self._error(output, reference, scale.spread) <= _SLACK * scale.bound + scale.reference_error:
            return
        _, expected = self._prepared.solve(inputs.draw)
        own = scale_of(expected, self._prepared.nominal_means, self._prepared.precision)
        error = self._error(output, self.sketch(expected.truth), own.spread)
        if error <= _SLACK * own.bound:
            return
        numbers = f"relative error {error:.2g} against fp64 (the reference: {own.reference_error:.2g})"
        if error <= _INACCURATE * own.bound:
            raise Rejection(
                Verdict.WRONG,
                f"not accurate enough on some of the inputs it was timed on: {numbers}; add up long sums in pieces, or "
                "with more than one accumulator",
            )
        raise Rejection(
            Verdict.WRONG,
            f"correct when it was checked first, not when it was timed: {numbers}; compute each output from the inputs "
            "of its own call, and finish before forward() returns",
        )

    def _error(self, output: OutputSketch, right: OutputSketch, spread: Sequence[float]) -> float:
        """Largest centred relative error over the tensors; infinite where one of them is NaN."""
        errors = [
            sketch.distance(mine, theirs) / (scale or 1.0)
            for sketch, mine, theirs, scale in zip(self._sketches, output, right, spread, strict=True)
        ]
        return max((math.inf if math.isnan(error) else error for error in errors), default=0.0)
