"""What a best-so-far figure is drawn over: children, or what they had cost until then."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import accumulate

from kbevolve.archive.records import Birth
from kbevolve.archive.report.curves import Curve, Point
from kbevolve.archive.throughput import PAUSE_SECONDS, device_seconds_of
from kbevolve.configs.errors import UsageError
from kbevolve.configs.prices import Prices

#: Measure -> the label of its axis.
MEASURES = {
    "children": "children evaluated",
    "time": "minutes since the run began, without pauses",
    "device-time": "minutes of device time",
    "tokens": "tokens sent and received",
    "dollars": "dollars",
}


def measured(curve: Curve, births: Iterable[Birth], by: str, prices: Prices) -> Curve:
    """The curve with each kernel at what the run had spent when its verdict came.

    Args:
        curve: by children.
        births: all births of the run in order, as tokens are also paid for those without a kernel.
        by: one of `MEASURES`.
        prices: of the models.

    Raises:
        UsageError: nothing was spent of it, or the price of a model is unknown.
    """
    if by == "children":
        return curve
    if by == "time":
        places = _minutes(curve)
    elif by == "device-time":
        places = list(accumulate([device_seconds_of(point.evaluation) / 60 for point in curve.points]))
    else:
        places = _paid(curve, births, prices if by == "dollars" else None)
    if not any(places):
        raise UsageError(f"run {curve.run.id} has no {by.replace('-', ' ')} to draw over; --by children has some")
    moved = {
        point.evaluation.kernel: replace(point, count=place) for point, place in zip(curve.points, places, strict=True)
    }
    steps = tuple(replace(step, point=moved[step.point.evaluation.kernel]) for step in curve.steps)
    return replace(curve, points=tuple(moved.values()), steps=steps)


def _minutes(curve: Curve) -> list[float]:
    """Verdicts come side by side: a kernel is never before one that was created earlier."""
    began = datetime.fromisoformat(curve.run.created).timestamp()
    now, passed, places = began, 0.0, []
    for point in curve.points:
        moment = max(_moment(point, began), now)
        passed += moment - now if moment - now <= PAUSE_SECONDS else 0.0
        now = moment
        places.append(passed / 60)
    return places


def _moment(point: Point, began: float) -> float:
    """When the verdict was there; that of an earlier run was there from the beginning."""
    execution = point.evaluation.execution
    return execution.started_at + execution.seconds if execution.started_at >= began else began


def _paid(curve: Curve, births: Iterable[Birth], prices: Prices | None) -> list[float]:
    """Tokens, or dollars at these prices, up to the birth of each kernel."""
    spent, by_birth = 0.0, {}
    for birth in births:
        tokens = birth.prompt_tokens, birth.completion_tokens
        if prices is None:
            spent += sum(tokens)
        elif any(tokens):
            price = prices.of(birth.model)
            if price is None:
                raise UsageError(f"the price of model {birth.model!r} is unknown; draw --by tokens instead")
            spent += price.dollars(*tokens)
        by_birth[birth.id] = spent
    return [by_birth[point.birth.id] for point in curve.points]
