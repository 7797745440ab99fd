"""Makes every timed call a checked call: inputs drawn for it alone, and its output compared by a sketch.

The outputs of a hundred calls do not fit into memory; a count sketch of each does, and tells how far two outputs are
from each other as the outputs themselves would (`correctness.sketch`). The reference runs on the same inputs in the
same round, in a process of its own, so its output is there to be compared with. Who differs from it is compared with
the fp64 truth before anything is said.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.candidate.remote import Call
from kbevolve.evaluators.candidate.side_effects import check_conduct
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.prepared import Draw, PreparedProblem
from kbevolve.evaluators.correctness.sketch import Sketch
from kbevolve.evaluators.correctness.truth import scale_of
from kbevolve.evaluators.rejection import Rejection

#: A sketch's estimate of a distance is off by some percent, and draws differ a little: so much more than in a trial is
#: accepted.
_SLACK = 1.5
#: Up to this many times the accepted error it is rounding that grew on some inputs, in the eyes of whoever is told.
_INACCURATE = 10.0

#: Sketches of the tensors of one output.
Impression = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Inputs of one timed call, the same for all kernels of a round."""

    draw: Draw
    inputs: list[torch.Tensor]


class Examiner:
    """Draws the inputs of timed calls and compares what came of them; the seeds are the judge's secret."""

    def __init__(self, prepared: PreparedProblem) -> None:
        self._prepared = prepared
        self._sketches = [
            Sketch(place.shape, device=prepared.reference.device, seed=secrets.randbits(62))
            for place in prepared.output_places
        ]

    def question(self) -> Question:
        """Inputs as the problem draws them, which nobody has seen."""
        draw = Draw(secrets.randbits(62), nominal)
        return Question(draw=draw, inputs=self._prepared.inputs(draw))

    def impression(self, outputs: Sequence[torch.Tensor]) -> Impression:
        """What is kept of an output."""
        return tuple(sketch.of(output) for sketch, output in zip(self._sketches, outputs, strict=True))

    def compare(self, question: Question, call: Call, given: Impression, reference: Impression) -> None:
        """Compare an answer with the reference's, and with the truth if they differ.

        Args:
            question: what was asked.
            call: how the kernel was called, and what else it did.
            given: what is kept of its answer.
            reference: and of the reference's.

        Raises:
            Rejection: the answer is wrong, or the call did what none may.
        """
        check_conduct(call, self._prepared)
        scale = self._prepared.nominal_scale
        bound = _SLACK * scale.bound + scale.reference_error
        if self._error(given, reference, scale.spread) <= bound:
            return
        _, answer = self._prepared.solve(question.draw)
        own = scale_of(answer, self._prepared.nominal_means, self._prepared.precision)
        error = self._error(given, self.impression(answer.truth), own.spread)
        if not error <= _SLACK * own.bound:
            numbers = f"relative error {error:.2g} against fp64 (the reference: {own.reference_error:.2g})"
            if error <= _INACCURATE * own.bound:
                raise Rejection(
                    Verdict.WRONG,
                    f"not accurate enough on some of the inputs it was timed on: {numbers}; add up long sums in "
                    "pieces, or with more than one accumulator",
                )
            raise Rejection(
                Verdict.WRONG,
                f"right when it was checked first, not when it was timed: {numbers}; compute each output from the "
                "inputs of its own call, and finish before forward() returns",
            )

    def _error(self, given: Impression, right: Impression, spread: Sequence[float]) -> float:
        """Largest centred relative error over the tensors; NaN when an output is no number where the other is."""
        errors = [
            sketch.distance(mine, theirs) / (scale or 1.0)
            for sketch, mine, theirs, scale in zip(self._sketches, given, right, spread, strict=True)
        ]
        return max(errors, key=lambda error: error if error == error else float("inf"), default=0.0)
