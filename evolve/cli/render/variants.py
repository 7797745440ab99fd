"""Verdicts on variants of a problem: a table with a row each, and the first failure in full."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from kbevolve.archive.record_json import plain
from kbevolve.evaluators.generality.variants import VariantVerdict
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.kernel import verdict_text
from kbevolve.evolve.cli.render.tables import Column, note, print_fields, print_table


class VariantProgress:
    """A line on standard error for each verdict."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._console = Console(stderr=True)

    def __call__(self, verdict: VariantVerdict) -> None:
        """Show a verdict as soon as it is known."""
        self._done += 1
        seconds = f", {verdict.evaluation.execution.seconds:.1f} s" if verdict.evaluation else ""
        note(self._console, f"{self._done}/{self._total} {name_of(verdict)}: {_verdict(verdict).plain}{seconds}")


def name_of(verdict: VariantVerdict) -> str:
    """``odd: N=51``, or the kind alone."""
    variant = verdict.variant
    return f"{variant.kind}: {variant.words}" if variant.words else variant.kind


def print_variants(console: Console, verdicts: Sequence[VariantVerdict], what: str, fields: Mapping[str, str]) -> None:
    """Print the table, the whole message of the first failure, and the fields; `what` heads the second column."""
    columns: list[Column[VariantVerdict]] = [
        Column("kind", lambda one: one.variant.kind),
        Column(what, lambda one: one.variant.words, flexible=True),
        Column("verdict", _verdict),
        Column("error", _error, right=True, least_width=100),
        Column("message", lambda one: one.message, flexible=True, least_width=70),
    ]
    print_table(console, columns, verdicts)
    failed = next((one for one in verdicts if one.evaluation is not None and not one.is_correct), None)
    failure = {"first failure": f"{name_of(failed)}: {failed.message}"} if failed else {}
    print_fields(console, {**failure, **fields})


def variant_json(verdict: VariantVerdict) -> dict[str, Any]:
    """One verdict for scripts; without an evaluation the verdict is null."""
    found = verdict.evaluation
    return {
        "kind": verdict.variant.kind,
        "words": verdict.variant.words,
        "sizes": dict(verdict.variant.sizes),
        "verdict": plain(found.verdict) if found else None,
        "message": verdict.message,
        "error": plain(found.accuracy.error) if found else None,
        "reference_error": plain(found.accuracy.reference_error) if found else None,
        "precision_class": found.accuracy.precision_class if found else None,
        "seconds": found.execution.seconds if found else None,
    }


def _verdict(verdict: VariantVerdict) -> Text:
    found = verdict.evaluation
    return verdict_text(found.verdict) if found else Text("not judged", style="dim")


def _error(verdict: VariantVerdict) -> str:
    error = verdict.evaluation.accuracy.error if verdict.evaluation else None
    return "" if error is None else f"{error:.1g}"
