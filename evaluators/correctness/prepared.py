"""What all candidates of a problem share: weights, secret inputs, expected outputs, and the layout of shared memory."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.correctness.draws import Draw, DrawPlanner
from kbevolve.evaluators.correctness.expected import solve
from kbevolve.evaluators.correctness.inputs import Distribution, integers, larger_integers, nominal, shuffled
from kbevolve.evaluators.correctness.kept import KeptTrials, Trial, bytes_of, compared, room_for_trials
from kbevolve.evaluators.correctness.mean import MeanOfTruth
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.rule import SLACK
from kbevolve.evaluators.correctness.truth import ExpectedOutput, Scale, is_usable, scale_of
from kbevolve.evaluators.correctness.visibility import CLEAR, VISIBLE, accepted_share, live_weights, share_words
from kbevolve.evaluators.correctness.weights import Weights, accepted_changes, amplified, mixed, varied
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.device.memory import Peak, free_bytes, is_out_of_memory, release_cache
from kbevolve.evaluators.worker.outputs import is_expanded, overlaps
from kbevolve.evaluators.worker.values import SharedTensor, lay_out

#: Share of the free memory that the inputs of one round may take. Where fewer than `_LEAST_CALLS` fit, the inputs of
#: each call are drawn again from their seed.
_ROUND_SHARE = 1 / 8
_LEAST_CALLS = 2
#: Nominal draws of which the mean of the truth is taken, those that are no trials included.
_AVERAGED = 3
#: Special numbers are tried where at least this share of the reference's answer stays finite.
_FINITE_SHARE = 0.5
#: Tag: some inputs were left out of the trials because the judge had too little memory for their truth.
LESS_MEMORY = "fewer-inputs-for-memory"
#: A reference whose output differs this much from its own fp64 output is random or unstable: it is no yardstick.
_UNSTABLE = 0.5
#: Transforms that may put an index out of its range.
_OUT_OF_RANGE = (integers, larger_integers, shuffled)


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
        self.problem, self.device, self.precision = problem, device, settings.precision
        seed = secrets.randbits(62)
        self.reference = Reference(problem, device, settings.precision, weight_seed=seed)
        #: Of each output of the reference, whether it shares memory with an input.
        self.aliasing = self.reference.find_side_effects()
        #: Indices of the inputs, and names of the state, that the reference's forward() changes.
        self.written_inputs, self.written_state = self.reference.written_inputs, self.reference.written_state
        #: What is unusual about the truth, e.g. "truth-fp32" when the reference does not run in fp64.
        self.tags: tuple[str, ...] = ()
        #: Copies: while a trial with other weights is computed, other threads read these.
        self.weights = Weights(seed=seed, tensors=self.reference.state())
        #: Factors of the weights by name; None where the judge sees enough with those of `Model`.
        self.factors: Mapping[str, float] | None = None
        #: Why no kernel can be told from one that ignores its input; "" where the judge can.
        self.degenerate = ""
        self._lay_out_arguments()
        self._prepare_trials(settings.trials)
        scale = self.nominal_scale
        if not (scale.live and scale.bound <= CLEAR) and self._enliven():
            self._prepare_trials(settings.trials)
        fitting = int(_ROUND_SHARE * free_bytes(device) / max(self.input_bytes, 1))
        #: Most timed calls of one round, and whether their inputs fit into memory side by side.
        self.most_calls, self.keeps_rounds = max(_LEAST_CALLS, fitting), fitting >= _LEAST_CALLS
        self._prepare_second_weights()

    def _prepare_trials(self, count: int) -> None:
        #: Whether timed calls may have inputs of which a row and a few elements are changed.
        self.allows_changed_rows = False
        self._draws = self._choose_draws(count)
        self._lay_out_tensors(self._draws[0])
        room = room_for_trials(self.device, worker_bytes=self.worker_bytes, truth_bytes=self.truth_bytes)
        #: Trials that stay in memory: all, and the two with the second weights, where they fit.
        draws = [*self._draws, self._draws[0], self._draws[0]]
        self.kept = KeptTrials(room, needed=bytes_of(draws, self.input_bytes, self.output_places))
        peak = Peak(self.device)
        self._scales, means = self._measure(self._draws)
        #: Memory in which one truth is computed.
        self.truth_bytes: int = peak.bytes(otherwise=self.truth_bytes)
        self._nominal_means = means if self.kept.fit else None

    def _enliven(self) -> bool:
        """Load weights with which the judge sees more of what depends on the inputs; whether there are any."""
        if self.factors is not None:
            return False
        share = accepted_share(self.reference)
        if found := live_weights(self.reference, share):
            self.factors, share, state = found
            self.reference.load(state)
            self.weights = replace(self.weights, tensors=self.reference.state())
            self.tags = ("scaled-weights",)
        self.degenerate = share_words(share) if share > VISIBLE else ""
        return found is not None

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self._draws)

    def trial(self, number: int) -> Trial:
        """Trial `number`, computed again when not all trials fitted into memory."""
        return self._trial(self._draws[number], self._scales[self._draws[number]])

    def second_trial(self, number: int) -> Trial:
        """A trial with `second_weights[number]`."""
        return self._trial(*self._second[number], weights=self.second_weights[number])

    def first_inputs(self) -> list[torch.Tensor]:
        """The inputs of the first trial."""
        return self.kept.first_inputs or self.inputs(self._draws[0])

    @property
    def worker_bytes(self) -> int:
        """Memory for one kernel: inputs and outputs shared with the judge, its own, and its outputs once more, for one
        that is read again later."""
        return 3 * self.shared_bytes - self.input_bytes

    @property
    def nominal_scale(self) -> Scale:
        """Divisors and bounds of errors on inputs as the problem draws them."""
        return self._scales[self._draws[0]]

    @property
    def nominal_means(self) -> list[torch.Tensor | None]:
        """Mean of the truth over nominal draws, for each output tensor; None where there is none. Without the memory to
        keep it, it is computed again."""
        if self._nominal_means is not None:
            return self._nominal_means
        total = MeanOfTruth(narrow=True)
        for _ in range(_AVERAGED):
            total.add(self.solve(Draw.of(nominal))[1].truth)
        return total.take()

    def _trial(self, draw: Draw, scale: Scale, *, weights: Weights | None = None) -> Trial:
        if kept := self.kept.get(draw):
            inputs, expected = kept
        else:
            with self._lock:
                inputs, expected = self.solve(draw, weights)
                expected = compared(draw, expected)
                release_cache(self.device)
        return Trial(transform=draw.transform, inputs=inputs, expected=expected, scale=scale)

    def _prepare_second_weights(self) -> None:
        """Other weights and one trial with them, unless the problem has no weights.

        Weights that are the same under both seeds are changed, where the reference stays accurate: `second_weights[0]`
        are for kernels that take weights by name. Others know nothing but the seed, and get `second_weights[-1]`.
        """
        self.second_weights: list[Weights] = []
        self._second: list[tuple[Draw, Scale]] = []
        if not self.weights.tensors:
            return
        seed = secrets.randbits(62)
        first, plain = self.weights.tensors, self.reference.reweighted(seed)
        if self.factors is not None:
            first = self.reference.reweighted(self.weights.seed)
            plain = amplified(first, plain, self.factors)
        changed = varied(first, plain, seed=secrets.randbits(62))
        if not self._keep_second(seed, changed):
            changed = accepted_changes(plain, changed, lambda some: self._keep_second(seed, some, keep=False))
            self._keep_second(seed, changed)
        if not self.second_weights or any(changed[name] is not plain[name] for name in plain):
            self._keep_second(seed, plain, needed=True)

    def _keep_second(
        self, seed: int, tensors: dict[str, torch.Tensor], *, keep: bool = True, needed: bool = False
    ) -> bool:
        """Whether kernels can be judged with these weights. Then, or where they are `needed`, keep them with a trial.

        Its inputs are the first trial's: an answer that is remembered by the inputs alone is wrong with other weights.
        """
        draw = Draw(self._draws[0].seed, nominal, weights=1 + len(self.second_weights))
        try:
            inputs, expected = self.solve(draw, Weights(seed=seed, tensors=tensors))
        except EvaluatorError:
            if needed:
                raise
            return False
        scale = self._scale_alone(expected)
        usable = all(expected.finite) and is_usable(
            scale.reference_error, self.nominal_scale.reference_error, self.precision
        )
        if needed or (usable and keep):
            self.second_weights.append(Weights(seed=seed, tensors=tensors))
            self._second.append((draw, scale))
            self.kept.keep(draw, inputs, expected)
        return usable

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
        #: Tensors that forward() returns; behind them are the inputs and the state that it changes.
        self.returned = len(outputs) - len(self.written_inputs) - len(self.written_state)
        #: What each of these is, for messages.
        self.output_names = (
            *(f"output {index}" for index in range(self.returned)),
            *(f"input {index} after the call" for index in self.written_inputs),
            *(f"{name} after the call" for name in self.written_state),
        )
        #: The strides of each tensor that the reference returns; None where its elements share memory.
        self.layouts = [None if overlaps([output]) else list(output.stride()) for output in outputs[: self.returned]]
        #: Whether the reference's own output repeats one element by stride 0, for each output tensor.
        self.output_expanded = [is_expanded(output) for output in outputs]
        #: Whether two elements of the reference's outputs are the same memory.
        self.overlapping = overlaps(outputs[: self.returned])
        self.truth_bytes = self.reference.truth_bytes(inputs)

    def _choose_draws(self, count: int) -> list[Draw]:
        """Nominal inputs first, then one usable transform of each kind, with nominal inputs in between."""
        first = Draw(secrets.randbits(62), nominal)
        expected = self.solve(first)[1]
        own = self._scale_alone(expected).reference_error
        form = [tensor.shape for tensor in expected.truth], expected.finite
        del expected  # before the next one is computed
        if not own * SLACK < _UNSTABLE and self._enliven():
            return self._choose_draws(count)
        if not all(form[1]):
            self.tags += ("not-finite",)
        if not own * SLACK < _UNSTABLE:
            raise EvaluatorError(
                f"{self.problem.name}: the reference is off by {own:.2g} from itself in fp64; it is random or "
                f"unstable at {self.precision}, and no kernel can be judged by it"
            )
        if count == 1:
            return [first]
        planned = DrawPlanner(self.reference, self._judging_rule(form, own)).plan(first, count)
        self.tags += planned.tags
        self.allows_changed_rows = planned.changed_rows
        return planned.draws

    def _judging_rule(self, form: tuple[list[torch.Size], list[bool]], nominal_error: float) -> Callable[[Draw], bool]:
        """Whether the reference stays finite and accurate on a draw; on special numbers, most of its answer.

        `form`: shapes, and whether all is finite, of each output tensor on inputs as the problem draws them.
        """
        shapes, finite = form

        def can_judge(draw: Draw) -> bool:
            if draw.function in _OUT_OF_RANGE and self.device.type == "cuda" and not self._runs_on_cpu(draw):
                return False  # an index out of range would break the judge's context
            try:
                expected = self.solve(draw)[1]
            except (EvaluatorError, torch.OutOfMemoryError) as error:
                if is_out_of_memory(error) and LESS_MEMORY not in self.tags:
                    self.tags += (LESS_MEMORY,)
                return False
            if [tensor.shape for tensor in expected.truth] != shapes:
                return False
            if expected.independent is not None:
                shares = [float(tensor.isfinite().float().mean()) for tensor in expected.truth if tensor.numel()]
                if min(shares, default=1.0) < _FINITE_SHARE:
                    return False
            elif expected.finite != finite:
                return False
            return is_usable(self._scale_alone(expected).reference_error, nominal_error, self.precision)

        return can_judge

    def _runs_on_cpu(self, draw: Draw) -> bool:
        try:
            other = Reference(self.problem, find_device("cpu"), self.precision, weight_seed=self.weights.seed)
            other.output(*other.inputs(draw.seed, draw.transform))
        except EvaluatorError:
            return False
        return True

    def _scale_alone(self, expected: ExpectedOutput) -> Scale:
        """The scale of one draw whose mean over draws is unknown."""
        return scale_of(expected, [None] * len(expected.truth), self.precision)

    def inputs(self, draw: Draw) -> list[torch.Tensor]:
        """Inputs without the expected output."""
        with self._lock:
            return self.reference.inputs(draw.seed, draw.transform)[1]

    def mixed_weights(self, seed: int) -> Weights:
        """Weights between the two sets that the trials use, in a proportion of its own for each tensor."""
        return mixed(self.weights, self.second_weights[0], seed=seed)

    def solve(self, draw: Draw, weights: Weights | None = None) -> tuple[list[torch.Tensor], ExpectedOutput]:
        """Inputs and the expected output; with the main weights, unless others are given."""
        if weights is not None:
            with self._lock, self.reference.weights(weights.tensors):
                return self.solve(draw)
        with self._lock:
            inputs, expected, exact = solve(self.reference, draw)
        if not exact and "truth-fp32" not in self.tags:
            self.tags += ("truth-fp32",)
        return inputs, expected

    def _measure(self, draws: Sequence[Draw]) -> tuple[dict[Draw, Scale], list[torch.Tensor | None]]:
        """The scale of every draw, from the mean of its distribution; also that mean of the nominal draws.

        Trials stay in memory, the first ones if there is no room for all.
        """
        transforms = [draw.transform for draw in draws]
        more = max(0, _AVERAGED - transforms.count(nominal))
        transforms += [nominal] * more
        sums: dict[Distribution, MeanOfTruth] = {}
        scales: dict[Draw, Scale] = {}
        for draw in (*draws, *(Draw.of(nominal) for _ in range(more))):
            inputs, expected = self.solve(draw)
            if transforms.count(draw.transform) == 1:
                scales[draw] = self._scale_alone(expected)
            else:
                sums.setdefault(draw.transform, MeanOfTruth(narrow=not self.kept.fit)).add(expected.truth)
            if draw in draws:
                self.kept.keep(draw, inputs, compared(draw, expected) if draw in scales else expected)
            del inputs, expected  # before the next ones are computed
        means = {transform: total.take() for transform, total in sums.items()}
        for draw in draws:
            if draw not in scales:
                inputs, expected = self.kept.get(draw) or self.solve(draw)
                scales[draw] = scale_of(expected, means[draw.transform], self.precision)
                self.kept.keep(draw, inputs, compared(draw, expected))
                del inputs, expected
        release_cache(self.device)
        return scales, means.get(nominal) or [None] * len(self.output_places)
