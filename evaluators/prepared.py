"""Everything that belongs to a problem and outlives its candidates: weights, secret inputs, the truth, layouts."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.devices import Device
from kbevolve.evaluators.inputs import TRANSFORMS, Transform, nominal
from kbevolve.evaluators.reference import Reference
from kbevolve.evaluators.truth import CAPS, SLACK, Answer, Scale, all_finite, scale_of
from kbevolve.evaluators.worker.values import Place, Unpackable, lay_out, pack

#: Share of the free memory that inputs and truths of all trials may keep; the rest is for the processes at work.
_KEPT_SHARE = 1 / 3
#: A reference that its own fp64 computation contradicts this much is random or unstable; nothing can be judged by it.
_UNSTABLE = 0.5


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of the inputs; the seed is the judge's secret."""

    seed: int
    transform: Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Inputs and the right answer to them."""

    #: Whether the inputs are as the problem draws them.
    nominal: bool
    inputs: list[torch.Tensor]
    answer: Answer
    scale: Scale


class PreparedProblem:
    """A problem made ready on one device, at one precision."""

    def __init__(self, problem: Problem, device: Device, settings: EvaluationSettings) -> None:
        """Run the reference and settle the trials.

        Raises:
            EvaluatorError: the reference fails, is not finite, or is random.
        """
        self.problem = problem
        self.precision = settings.precision
        self.weight_seed = secrets.randbits(62)
        self.reference = Reference(problem, device, settings.precision, weight_seed=self.weight_seed)
        #: What the problem's card says, e.g. "truth-fp32" when fp64 does not run.
        self.tags: tuple[str, ...] = ()
        self._lay_out_arguments()
        draws = self._choose_draws(settings.trials)
        self._lay_out_tensors(draws[0])
        self._kept: dict[Draw, tuple[list[torch.Tensor], Answer]] = {}
        self._scales = self._measure(draws, keep=self._fits(len(draws), device))
        self._draws = draws

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self._draws)

    def trial(self, number: int) -> Trial:
        """Trial `number` (any number: they come round), recomputed when all of them did not fit into memory."""
        return self._trial(self._draws[number % len(self._draws)])

    def timed_trial(self, number: int) -> Trial:
        """Trial `number` among those with nominal inputs: times are of what the problem asks for."""
        nominals = [draw for draw in self._draws if draw.transform is nominal]
        return self._trial(nominals[number % len(nominals)])

    def _trial(self, draw: Draw) -> Trial:
        if draw in self._kept:
            inputs, answer = self._kept[draw]
        else:
            inputs, answer = self._solve(draw)
            _release_cache(inputs)
        return Trial(nominal=draw.transform is nominal, inputs=inputs, answer=answer, scale=self._scales[draw])

    def _lay_out_arguments(self) -> None:
        self.argument_tensors: list[torch.Tensor] = []
        try:
            #: Constructor arguments as `worker.values.pack` writes them.
            self.arguments: Any = pack(self.reference.arguments, self.argument_tensors)
        except Unpackable as error:
            raise EvaluatorError(
                f"{self.problem.name}: get_init_inputs() returns {error}; it may return tensors and plain values"
            ) from None
        self.weights = dict(self.reference.model.state_dict())
        #: Places of the weights by name, then of tensors among the arguments, from byte 0.
        places, self.loading_bytes = lay_out([*self.weights.values(), *self.argument_tensors])
        self.weight_places: dict[str, Place] = dict(zip(self.weights, places, strict=False))
        self.argument_places = places[len(self.weights) :]

    def _lay_out_tensors(self, draw: Draw) -> None:
        self.input_structure, inputs = self.reference.inputs(draw.seed, draw.transform)
        self.output_structure, outputs = self.reference.answer(self.input_structure, inputs)
        self.input_places, self.input_bytes = lay_out(inputs)
        start = max(self.input_bytes, self.loading_bytes)
        #: Behind inputs and weights, which take turns at the beginning.
        self.output_places, self.arena_bytes = lay_out(
            [torch.empty(output.shape, dtype=output.dtype, device="meta") for output in outputs], start=start
        )
        exact = sum(output.numel() * (8 + output.element_size()) for output in outputs)
        self._trial_bytes = self.input_bytes + exact

    def _choose_draws(self, count: int) -> list[Draw]:
        """Nominal and transformed draws in turn; nominal ones only when the reference bears no transform."""
        first = Draw(secrets.randbits(62), nominal)
        _, answer = self._solve(first)
        if not all(answer.finite):
            self.tags += ("not-finite",)
        own = scale_of(answer, [None] * len(answer.truth), self.precision).reference_error
        if not own * SLACK < _UNSTABLE:
            raise EvaluatorError(
                f"{self.problem.name}: the reference is off by {own:.2g} from itself in fp64; it is random or "
                f"unstable at {self.precision}, and no kernel can be judged by it"
            )
        transform = nominal if count == 1 else self._bearable_transform(answer)
        draws = [Draw(secrets.randbits(62), transform if number % 2 else nominal) for number in range(1, count)]
        return [first, *draws]

    def _bearable_transform(self, plain: Answer) -> Transform:
        for transform in TRANSFORMS:
            _, answer = self._solve(Draw(secrets.randbits(62), transform))
            own = scale_of(answer, [None] * len(answer.truth), self.precision).reference_error
            if answer.finite == plain.finite and own <= CAPS[self.precision]:
                return transform
        self.tags += ("nominal-inputs-only",)
        return nominal

    def _solve(self, draw: Draw) -> tuple[list[torch.Tensor], Answer]:
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

    def _fits(self, count: int, device: Device) -> bool:
        return count * self._trial_bytes <= _KEPT_SHARE * _free_bytes(device)

    def _measure(self, draws: Sequence[Draw], *, keep: bool) -> dict[Draw, Scale]:
        """The scale of every draw, from the mean of its distribution."""
        sums: dict[Transform, list[torch.Tensor]] = {}
        counts: dict[Transform, int] = {}
        for draw in draws:
            solved = self._solve(draw)
            if keep:
                self._kept[draw] = solved
            truth = solved[1].truth
            counts[draw.transform] = counts.get(draw.transform, 0) + 1
            if draw.transform in sums:
                for total, tensor in zip(sums[draw.transform], truth, strict=True):
                    total += tensor
            elif len(draws) > 1:
                # In fp32 where nothing is kept: a mean needs no more, and memory is short there.
                sums[draw.transform] = [tensor.clone() if keep else tensor.float() for tensor in truth]
        scales = {}
        for draw in draws:
            _, answer = self._kept.get(draw) or self._solve(draw)
            repeated = counts[draw.transform] > 1
            means = [
                total / counts[draw.transform] if repeated and tensor.is_floating_point() else None
                for total, tensor in zip(sums.get(draw.transform, answer.truth), answer.truth, strict=True)
            ]
            scales[draw] = scale_of(answer, means, self.precision)
        sums.clear()
        _release_cache(answer.truth)
        return scales


def _release_cache(tensors: Sequence[torch.Tensor]) -> None:
    """Give back what torch keeps for later allocations: the workers' processes need that memory."""
    if any(tensor.is_cuda for tensor in tensors):
        torch.cuda.empty_cache()


def _free_bytes(device: Device) -> int:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device.index)[0]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise EvaluatorError("/proc/meminfo names no MemAvailable; kbevolve runs on Linux 3.14 or newer")
