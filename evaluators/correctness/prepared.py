"""Everything that belongs to a problem and outlives its candidates: weights, secret inputs, the truth, layouts."""

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness.inputs import KINDS, Transform, draw_plan, nominal
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import SLACK, Answer, Scale, all_finite, is_bearable, scale_of
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import free_bytes, release_cache
from kbevolve.evaluators.worker.values import SharedTensor, Unpackable, lay_out, pack

#: Share of the free memory that inputs and truths of trials may keep; the rest is for the processes at work. What does
#: not fit is computed again for each kernel.
_KEPT_SHARE = 1 / 3
#: Share of the free memory that the inputs of one round may take.
_ROUND_SHARE = 1 / 8
#: A reference that its own fp64 computation contradicts this much is random or unstable; nothing can be judged by it.
_UNSTABLE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of one construction."""

    #: Seed that `Model` was constructed with, and `ModelNew` is.
    seed: int
    #: The reference's state, by name.
    tensors: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of the inputs; the seed is the judge's secret."""

    seed: int
    transform: Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Inputs and the right answer to them."""

    #: What was done to the inputs that the problem drew.
    transform: Transform
    inputs: list[torch.Tensor]
    answer: Answer
    scale: Scale


class PreparedProblem:
    """A problem made ready on one device, at one precision.

    `trial`, `second_trial`, `inputs` and `solve` may be called from several threads, one of which runs the problem's
    code at a time: it draws from torch's generators, which belong to the whole process.
    """

    def __init__(self, problem: Problem, device: Device, settings: EvaluationSettings) -> None:
        """Run the reference and settle the trials.

        Raises:
            EvaluatorError: the reference fails, is not finite, or is random.
        """
        self._one_at_a_time = threading.RLock()
        self.problem = problem
        self.device = device
        self.precision = settings.precision
        seed = secrets.randbits(62)
        self.reference = Reference(problem, device, settings.precision, weight_seed=seed)
        #: Whether the reference's forward changes its inputs, and whether its output shares memory with them.
        self.in_place = self.reference.in_place
        self.aliasing = self.reference.aliasing
        #: What is unusual about the truth, e.g. "truth-fp32" when fp64 does not run.
        self.tags: tuple[str, ...] = ()
        self.weights = Weights(seed=seed, tensors=dict(self.reference.model.state_dict()))
        self._lay_out_arguments()
        draws = self._choose_draws(settings.trials)
        self._lay_out_tensors(draws[0])
        self._kept: dict[Draw, tuple[list[torch.Tensor], Answer]] = {}
        fitting = self._fitting()
        #: Mean of the truth over the nominal draws, for each output tensor; None where there is none.
        self._scales, self.nominal_means = self._measure(draws, keep=fitting)
        self._draws = draws
        #: Timed calls of one round whose inputs fit into memory side by side.
        self.most_calls = max(1, int(_ROUND_SHARE * free_bytes(device) / max(self.input_bytes, 1)))
        self._prepare_second_weights(keep=fitting > len(draws))

    # ---- trials ----------------------------------------------------------------------------------------------------

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self._draws)

    def trial(self, number: int) -> Trial:
        """Trial `number`, recomputed when all of them did not fit into memory."""
        draw = self._draws[number]
        if draw in self._kept:
            inputs, answer = self._kept[draw]
        else:
            with self._one_at_a_time:
                inputs, answer = self.solve(draw)
                release_cache(self.device)
        return self._as_trial(draw, inputs, answer, self._scales[draw])

    @property
    def nominal_scale(self) -> Scale:
        """What errors on inputs as the problem draws them are measured against."""
        return self._scales[self._draws[0]]

    def _as_trial(self, draw: Draw, inputs: list[torch.Tensor], answer: Answer, scale: Scale) -> Trial:
        return Trial(transform=draw.transform, inputs=inputs, answer=answer, scale=scale)

    def _prepare_second_weights(self, *, keep: bool) -> None:
        """Other weights and one trial with them; None for a problem without."""
        self.second_weights: Weights | None = None
        self._second: tuple[Draw, Scale] | None = None
        if not self.weights.tensors:
            return
        seed = secrets.randbits(62)
        self.second_weights = Weights(seed=seed, tensors=self.reference.reweighted(seed))
        draw = Draw(secrets.randbits(62), nominal)
        with self.reference.weights(self.second_weights.tensors):
            inputs, answer = self.solve(draw)
        scale = scale_of(answer, [None] * len(answer.truth), self.precision)
        self._second = draw, scale
        if keep:
            self._kept[draw] = inputs, answer

    def second_trial(self) -> Trial:
        """A trial with `second_weights`."""
        assert self._second is not None
        assert self.second_weights is not None
        draw, scale = self._second
        if draw in self._kept:
            inputs, answer = self._kept[draw]
        else:
            with self._one_at_a_time, self.reference.weights(self.second_weights.tensors):
                inputs, answer = self.solve(draw)
        return self._as_trial(draw, inputs, answer, scale)

    # ---- layouts ---------------------------------------------------------------------------------------------------

    def _lay_out_arguments(self) -> None:
        self.argument_tensors: list[torch.Tensor] = []
        try:
            #: Constructor arguments as `worker.values.pack` writes them.
            self.arguments: Any = pack(self.reference.arguments, self.argument_tensors)
        except Unpackable as error:
            raise EvaluatorError(
                f"{self.problem.name}: get_init_inputs() returns {error}; it may return tensors and plain values"
            ) from None
        #: Places of the weights by name, then of tensors among the arguments, from byte 0.
        tensors = self.weights.tensors
        places, self.loading_bytes = lay_out([*tensors.values(), *self.argument_tensors])
        self.weight_places: dict[str, SharedTensor] = dict(zip(tensors, places, strict=False))
        self.argument_places = places[len(tensors) :]

    def _lay_out_tensors(self, draw: Draw) -> None:
        self.input_structure, inputs = self.reference.inputs(draw.seed, draw.transform)
        self.output_structure, outputs = self.reference.answer(self.input_structure, inputs)
        self.input_places, self.input_bytes = lay_out(inputs)
        start = max(self.input_bytes, self.loading_bytes)
        #: Behind inputs and weights, which take turns at the beginning.
        self.output_places, self.shared_bytes = lay_out(
            [torch.empty(output.shape, dtype=output.dtype, device="meta") for output in outputs], start=start
        )
        #: Whether the reference itself shows one element many times (stride 0), for each output tensor.
        self.output_expanded = [
            any(stride == 0 and size > 1 for stride, size in zip(output.stride(), output.shape, strict=True))
            for output in outputs
        ]
        exact = sum(output.numel() * (8 + output.element_size()) for output in outputs)
        self._trial_bytes = self.input_bytes + exact

    # ---- truth -----------------------------------------------------------------------------------------------------

    def _choose_draws(self, count: int) -> list[Draw]:
        """Nominal inputs first, then each kind of transform that the reference bears, nominal ones in between."""
        first = Draw(secrets.randbits(62), nominal)
        _, answer = self.solve(first)
        if not all(answer.finite):
            self.tags += ("not-finite",)
        own = self._own_error(answer)
        if not own * SLACK < _UNSTABLE:
            raise EvaluatorError(
                f"{self.problem.name}: the reference is off by {own:.2g} from itself in fp64; it is random or "
                f"unstable at {self.precision}, and no kernel can be judged by it"
            )
        kinds = KINDS if count > 1 else ()
        bearable = [transform for kind in kinds for transform in [self._bearable(kind, answer)] if transform]
        if kinds and not bearable:
            self.tags += ("nominal-inputs-only",)
        plan = draw_plan(count, bearable)
        return [first, *(Draw(secrets.randbits(62), transform) for transform in plan[1:])]

    def _bearable(self, kind: Sequence[Transform], plain: Answer) -> Transform | None:
        """The first transform of a kind on which the reference stays finite and accurate."""
        nominal_error = self._own_error(plain)
        for transform in kind:
            _, answer = self.solve(Draw(secrets.randbits(62), transform))
            own = self._own_error(answer)
            if answer.finite == plain.finite and is_bearable(own, nominal_error, self.precision):
                return transform
        return None

    def _own_error(self, answer: Answer) -> float:
        """E of the reference itself, with no mean over draws known."""
        return scale_of(answer, [None] * len(answer.truth), self.precision).reference_error

    def inputs(self, draw: Draw) -> list[torch.Tensor]:
        """Inputs without the answer."""
        with self._one_at_a_time:
            return self.reference.inputs(draw.seed, draw.transform)[1]

    def solve(self, draw: Draw) -> tuple[list[torch.Tensor], Answer]:
        """Inputs and the right answer to them."""
        with self._one_at_a_time:
            structure, inputs = self.reference.inputs(draw.seed, draw.transform)
            reference = self.reference.answer(structure, inputs)[1]
            truth, exact = self.reference.truth(structure, inputs)
        if not exact and "truth-fp32" not in self.tags:
            self.tags += ("truth-fp32",)
        answer = Answer(
            truth=[
                tensor.double().contiguous() if tensor.is_floating_point() else tensor.contiguous() for tensor in truth
            ],
            reference=[tensor.contiguous() for tensor in reference],
            finite=[all_finite(tensor) for tensor in truth],
        )
        return inputs, answer

    def _fitting(self) -> int:
        """Trials that fit into memory."""
        return int(_KEPT_SHARE * free_bytes(self.device) / max(self._trial_bytes, 1))

    def _measure(self, draws: Sequence[Draw], *, keep: int) -> tuple[dict[Draw, Scale], list[torch.Tensor | None]]:
        """The scale of every draw, from the mean of its distribution; also that mean of the nominal ones.

        `keep` trials are kept, the first of them: timing warms up with that one.
        """
        sums: dict[Transform, list[torch.Tensor]] = {}
        counts: dict[Transform, int] = {}
        for draw in draws:
            solved = self.solve(draw)
            if len(self._kept) < keep:
                self._kept[draw] = solved
            truth = solved[1].truth
            counts[draw.transform] = counts.get(draw.transform, 0) + 1
            if draw.transform in sums:
                for total, tensor in zip(sums[draw.transform], truth, strict=True):
                    total += tensor
            elif sum(other.transform is draw.transform for other in draws) > 1:
                # In fp32 where not all are kept: a mean needs no more, and memory is short there.
                sums[draw.transform] = [tensor.clone() if keep >= len(draws) else tensor.float() for tensor in truth]
        scales = {}
        for draw in draws:
            _, answer = self._kept.get(draw) or self.solve(draw)
            totals: list[torch.Tensor] | list[None] = sums.get(draw.transform) or [None] * len(answer.truth)
            means = [
                total / counts[draw.transform] if total is not None and tensor.is_floating_point() else None
                for total, tensor in zip(totals, answer.truth, strict=True)
            ]
            scales[draw] = scale_of(answer, means, self.precision)
            if draw is draws[0]:
                nominal_means = means
        sums.clear()
        release_cache(self.device)
        return scales, nominal_means
