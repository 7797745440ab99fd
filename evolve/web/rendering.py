"""The words of the templates; the same for the pages and for a report."""

from typing import Any

from jinja2 import Environment

from kbevolve.archive import formatting
from kbevolve.archive.records import Operator, Verdict
from kbevolve.archive.run_queries import strategy_of
from kbevolve.evolve.web import charts
from kbevolve.evolve.web.code import visible
from kbevolve.islands.niches import LEVELS


def interval_of(measured: Any) -> str:
    """The 95 % interval of whatever has a speedup; "" without one."""
    low, high = measured.speedup_low, measured.speedup_high
    return "" if low is None or high is None else formatting.interval_words(low, high)


def prepare(environment: Environment) -> None:
    """Give an environment what the templates use."""
    environment.autoescape = True  # Flask escapes by the ending of a template's name, and ours end in .jinja
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {
        "device": formatting.device_words,
        "digits": formatting.three_digits,
        "duration": formatting.duration_words,
        "interval": interval_of,
        "state": formatting.state_words,
        "percent": formatting.percent_words,
        "size": formatting.size_words,
        "time": formatting.time_words,
        "times": formatting.as_times,
        "verdict": formatting.verdict_words,
        "visible": visible,
    }
    environment.globals |= {
        "CORRECT": Verdict.CORRECT,
        "LEVELS": LEVELS,
        "NOT_STOPPED": formatting.NOT_STOPPED,
        "charts": charts,
        "comparison_words": formatting.comparison_words,
        "operators": list(Operator),
        "strategy_of": strategy_of,
        "verdicts": list(reversed(Verdict)),
    }
