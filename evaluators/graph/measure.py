"""Times, rooflines and structure of a graph's regions, from one run on the problem's own inputs and weights."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.analysis.conditions import judging_conditions
from kbevolve.evaluators.analysis.inspection import WEIGHT_SEED
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.reference import Reference, preserved_state
from kbevolve.evaluators.device.devices import Device, current
from kbevolve.evaluators.device.memory import release_cache
from kbevolve.evaluators.graph.execution import GraphRun
from kbevolve.evaluators.graph.records import Graph, Operand, Region
from kbevolve.evaluators.worker.values import unpack

#: Most timed calls of a region after a first one, and the seconds after which no further call starts.
_CALLS, _SECONDS = 7, 0.3
_INPUT_SEED = 1000
#: Operands whose structure lets a kernel skip work.
_STRUCTURED = ("left", "right", "mask")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGraph:
    """A graph with the times of its regions."""

    graph: Graph
    #: Milliseconds of the whole model, timed as the regions are.
    eager_ms: float
    #: ||regions - model|| / ||model|| over all outputs: 0 or rounding, else the cut is wrong.
    difference: float


def measured(graph: Graph, problem: Problem, device: Device, precision: str, roofline: Roofline) -> MeasuredGraph:
    """Run every region on the device, on the values that it has in the model, and time it.

    Raises:
        EvaluatorError: the reference fails, or memory is too short.
    """
    reference = Reference(problem, device, precision, weight_seed=WEIGHT_SEED)
    structure, inputs = reference.inputs(_INPUT_SEED, nominal)
    task_class = {"fp16": "half", "bf16": "half"}.get(precision, precision)
    try:
        with current(device), judging_conditions(device, precision):
            # Models that draw random numbers draw the same ones, in the same order.
            torch.manual_seed(_INPUT_SEED)
            expected = reference.returned(structure, inputs)
            # Copies, because the model may change them.
            arguments = unpack(structure, [tensor.clone() for tensor in inputs])
            with preserved_state(reference.model):
                eager_ms = _milliseconds(partial(reference.model, *arguments), device)
            del arguments
            torch.manual_seed(_INPUT_SEED)
            execution = GraphRun(graph, reference.model, inputs)
            regions = []
            for region in graph.regions:
                operands = tuple(_with_structure(operand, execution) for operand in region.operands)
                with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
                    region_ms = _milliseconds(partial(execution.compute, region), device)
                execution.run(region)
                regions.append(
                    replace(
                        region,
                        operands=operands,
                        eager_ms=region_ms,
                        roofline_ms=_roofline(region, roofline, task_class),
                    )
                )
            difference = max(map(difference_of, execution.outputs(), expected), default=0.0)
    except torch.OutOfMemoryError:
        raise EvaluatorError(
            f"{problem.name}: not enough memory on {device.description} to time its regions; use smaller sizes"
        ) from None
    release_cache(device)
    return MeasuredGraph(graph=replace(graph, regions=tuple(regions)), eager_ms=eager_ms, difference=difference)


def structure_of(matrix: torch.Tensor) -> tuple[str, ...]:
    """Facts about the last two axes: "diagonal", "lower triangular", "upper triangular", "symmetric"; () for zeros."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] < 2:
        return ()
    above, below = bool(matrix.triu(1).any()), bool(matrix.tril(-1).any())
    if not above and not below:
        return ("diagonal",) if bool(matrix.any()) else ()
    if not above or not below:
        return ("upper triangular",) if above else ("lower triangular",)
    return ("symmetric",) if torch.equal(matrix, matrix.mT) else ()


def _with_structure(operand: Operand, execution: GraphRun) -> Operand:
    if operand.role not in _STRUCTURED:
        return operand
    return replace(operand, structure=structure_of(execution.value(operand.value)))


def _roofline(region: Region, roofline: Roofline, task_class: str) -> float:
    moved = region.bytes_read + region.bytes_written
    return roofline.roofline_ms(task_class, moved_bytes=moved, operations=region.flops)


def _milliseconds(call: Callable[[], Any], device: Device) -> float:
    """Median of some calls. On a GPU they queue up, so that launches hide behind the work before them."""
    call()
    times: list[float] = []
    started = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.synchronize(device.index)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(_CALLS + 1)]  # type: ignore[no-untyped-call]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        torch.cuda.synchronize(device.index)
        times = [float(one.elapsed_time(two)) for one, two in pairwise(events)]
        return statistics.median(times)
    while len(times) < _CALLS and (not times or time.perf_counter() - started < _SECONDS):
        begun = time.perf_counter()
        call()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def difference_of(one: torch.Tensor, other: torch.Tensor) -> float:
    """Relative; equal infinities and NaN are no difference, unequal ones an infinite one."""
    same = (one == other) | ((one != one) & (other != other))
    distance = float(torch.linalg.vector_norm((one.double() - other.double()).masked_fill(same, 0.0)))
    whole = float(torch.linalg.vector_norm(other[other.isfinite()].double()))
    return distance / (whole or 1.0) if math.isfinite(distance) else math.inf
