"""What all candidates of a problem share: weights, secret inputs, expected outputs, and the layout of shared memory."""

import secrets
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness.inputs import KINDS, Transform, nominal, plan_transforms
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import SLACK, ExpectedOutput, Scale, all_finite, is_usable, scale_of
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.device.memory import free_bytes, release_cache
from kbevolve.evaluators.worker.values import SharedTensor, lay_out

#: Share of the free memory for inputs and expected outputs of trials; worker processes need the rest. Trials that do
#: not fit are computed again for each kernel.
_KEPT_SHARE = 1 / 3
#: Share of the free memory that the inputs of one round may take.
_ROUND_SHARE = 1 / 8
#: A reference whose output differs this much from its own fp64 output is random or unstable: it is no yardstick.
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
    """Inputs and the expected output."""

    #: Applied to the inputs that the problem drew.
    transform: Transform
    inputs: list[torch.Tensor]
    expected: ExpectedOutput
    scale: Scale


class PreparedProblem:
    """A problem prepared on one device, at one precision.

    `trial`, `second_trial`, `inputs` and `solve` may be called from several threads. A lock lets one thread at a time
    run the problem's code, because that draws from torch's generators, which the whole process shares.
    """

    def __init__(self, problem: Problem, device: Device, settings: EvaluationSettings) -> None:
        """Run the reference and choose the trials.

        Raises:
            EvaluatorError: the reference fails, is not finite, or is random.
        """
        self._lock = threading.RLock()
        self.problem = problem
        self.device = device
        self.precision = settings.precision
        seed = secrets.randbits(62)
        self.reference = Reference(problem, device, settings.precision, weight_seed=seed)
        #: Whether the reference's forward changes its inputs, and whether its output shares memory with them.
        self.in_place, self.aliasing = self.reference.side_effects()
        #: What is unusual about the truth, e.g. "truth-fp32" when the reference does not run in fp64.
        self.tags: tuple[str, ...] = ()
        self.weights = Weights(seed=seed, tensors=dict(self.reference.model.state_dict()))
        self._lay_out_arguments()
        self._draws = self._choose_draws(settings.trials)
        self._lay_out_tensors(self._draws[0])
        self._kept: dict[Draw, tuple[list[torch.Tensor], ExpectedOutput]] = {}
        capacity = self._capacity()
        #: Mean of the truth over the nominal draws, for each output tensor; None where there is none.
        self._scales, self.nominal_means = self._measure(self._draws, keep=capacity)
        #: Timed calls of one round whose inputs fit into memory side by side.
        self.most_calls = max(1, int(_ROUND_SHARE * free_bytes(device) / max(self.input_bytes, 1)))
        self._prepare_second_weights(keep=capacity > len(self._draws))

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self._draws)

    def trial(self, number: int) -> Trial:
        """Trial `number`, computed again when not all trials fitted into memory."""
        return self._trial(self._draws[number], self._scales[self._draws[number]])

    def second_trial(self) -> Trial:
        """A trial with `second_weights`."""
        assert self._second is not None
        return self._trial(*self._second, weights=self.second_weights)

    @property
    def nominal_scale(self) -> Scale:
        """Divisors and bounds of errors on inputs as the problem draws them."""
        return self._scales[self._draws[0]]

    def _trial(self, draw: Draw, scale: Scale, *, weights: Weights | None = None) -> Trial:
        if draw in self._kept:
            inputs, expected = self._kept[draw]
        else:
            with self._lock, self.reference.weights(weights.tensors) if weights else nullcontext():
                inputs, expected = self.solve(draw)
                release_cache(self.device)
        return Trial(transform=draw.transform, inputs=inputs, expected=expected, scale=scale)

    def _prepare_second_weights(self, *, keep: bool) -> None:
        """Other weights and one trial with them; None for a problem without weights."""
        self.second_weights: Weights | None = None
        self._second: tuple[Draw, Scale] | None = None
        if not self.weights.tensors:
            return
        seed = secrets.randbits(62)
        self.second_weights = Weights(seed=seed, tensors=self.reference.reweighted(seed))
        draw = Draw(secrets.randbits(62), nominal)
        with self.reference.weights(self.second_weights.tensors):
            inputs, expected = self.solve(draw)
        self._second = draw, self._scale_alone(expected)
        if keep:
            self._kept[draw] = inputs, expected

    def _lay_out_arguments(self) -> None:
        #: Structure of the constructor arguments (`worker.values.pack`), and the tensors in it.
        self.arguments, self.argument_tensors = self.reference.packed("get_init_inputs()", self.reference.arguments)
        #: Places of the weights by name, then of tensors among the arguments, from byte 0.
        tensors = self.weights.tensors
        places, self.loading_bytes = lay_out([*tensors.values(), *self.argument_tensors])
        self.weight_places: dict[str, SharedTensor] = dict(zip(tensors, places, strict=False))
        self.argument_places = places[len(tensors) :]

    def _lay_out_tensors(self, draw: Draw) -> None:
        self.input_structure, inputs = self.reference.inputs(draw.seed, draw.transform)
        self.output_structure, outputs = self.reference.output(self.input_structure, inputs)
        self.input_places, self.input_bytes = lay_out(inputs)
        #: Outputs lie behind inputs and weights, which share the first bytes one after the other.
        self.output_places, self.shared_bytes = lay_out(
            [torch.empty(output.shape, dtype=output.dtype, device="meta") for output in outputs],
            start=max(self.input_bytes, self.loading_bytes),
        )
        #: Whether the reference's own output repeats one element by stride 0, for each output tensor.
        self.output_expanded = [
            any(stride == 0 and size > 1 for stride, size in zip(output.stride(), output.shape, strict=True))
            for output in outputs
        ]
        exact = sum(output.numel() * (8 + output.element_size()) for output in outputs)
        self._trial_bytes = self.input_bytes + exact

    def _choose_draws(self, count: int) -> list[Draw]:
        """Nominal inputs first, then one usable transform of each kind, with nominal inputs in between."""
        first = Draw(secrets.randbits(62), nominal)
        _, expected = self.solve(first)
        if not all(expected.finite):
            self.tags += ("not-finite",)
        own = self._scale_alone(expected).reference_error
        if not own * SLACK < _UNSTABLE:
            raise EvaluatorError(
                f"{self.problem.name}: the reference is off by {own:.2g} from itself in fp64; it is random or "
                f"unstable at {self.precision}, and no kernel can be judged by it"
            )
        kinds = KINDS if count > 1 else ()
        usable = [found for kind in kinds if (found := self._usable(kind, expected, own))]
        if kinds and not usable:
            self.tags += ("nominal-inputs-only",)
        plan = plan_transforms(count, usable)
        return [first, *(Draw(secrets.randbits(62), transform) for transform in plan[1:])]

    def _usable(self, kind: Sequence[Transform], plain: ExpectedOutput, nominal_error: float) -> Transform | None:
        """The first transform of a kind on which the reference stays finite and accurate."""
        for transform in kind:
            _, expected = self.solve(Draw(secrets.randbits(62), transform))
            own = self._scale_alone(expected).reference_error
            if expected.finite == plain.finite and is_usable(own, nominal_error, self.precision):
                return transform
        return None

    def _scale_alone(self, expected: ExpectedOutput) -> Scale:
        """The scale of one draw whose mean over draws is unknown."""
        return scale_of(expected, [None] * len(expected.truth), self.precision)

    def inputs(self, draw: Draw) -> list[torch.Tensor]:
        """Inputs without the expected output."""
        with self._lock:
            return self.reference.inputs(draw.seed, draw.transform)[1]

    def solve(self, draw: Draw) -> tuple[list[torch.Tensor], ExpectedOutput]:
        """Inputs and the expected output."""
        with self._lock:
            structure, inputs = self.reference.inputs(draw.seed, draw.transform)
            reference = self.reference.output(structure, inputs)[1]
            truth, exact = self.reference.truth(structure, inputs)
        if not exact and "truth-fp32" not in self.tags:
            self.tags += ("truth-fp32",)
        expected = ExpectedOutput(
            truth=[(each.double() if each.is_floating_point() else each).contiguous() for each in truth],
            reference=[tensor.contiguous() for tensor in reference],
            finite=[all_finite(tensor) for tensor in truth],
        )
        return inputs, expected

    def _capacity(self) -> int:
        """Number of trials that fit into memory."""
        return int(_KEPT_SHARE * free_bytes(self.device) / max(self._trial_bytes, 1))

    def _measure(self, draws: Sequence[Draw], *, keep: int) -> tuple[dict[Draw, Scale], list[torch.Tensor | None]]:
        """The scale of every draw, from the mean of its distribution; also that mean of the nominal draws.

        The first `keep` trials stay in memory: timing warms up with the very first.
        """
        transforms = [draw.transform for draw in draws]
        sums: dict[Transform, list[torch.Tensor]] = {}
        for draw in draws:
            solved = self.solve(draw)
            if len(self._kept) < keep:
                self._kept[draw] = solved
            truth = solved[1].truth
            if draw.transform in sums:
                for total, tensor in zip(sums[draw.transform], truth, strict=True):
                    total += tensor
            elif transforms.count(draw.transform) > 1:
                # In fp32 where memory is short: a mean needs no more precision.
                sums[draw.transform] = [tensor.clone() if keep >= len(draws) else tensor.float() for tensor in truth]
        scales = {}
        for draw in draws:
            _, expected = self._kept.get(draw) or self.solve(draw)
            totals: list[torch.Tensor] | list[None] = sums.get(draw.transform) or [None] * len(expected.truth)
            means = [
                total / transforms.count(draw.transform) if total is not None and tensor.is_floating_point() else None
                for total, tensor in zip(totals, expected.truth, strict=True)
            ]
            scales[draw] = scale_of(expected, means, self.precision)
            if draw is draws[0]:
                nominal_means = means
        sums.clear()
        release_cache(self.device)
        return scales, nominal_means
