"""A run as a stream of plain objects, for `kbevolve run --json` and for trackers of experiments.

Each object has `event` and `at`; docs/events.md explains every field, and a test compares it with a real stream.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kbevolve.archive.connection import now
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Birth, Confirmation, StopReason
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.proposers.factory import proposer_words
from kbevolve.evolve.search.budget import Budget
from kbevolve.evolve.search.events import Event
from kbevolve.evolve.state.context import RunContext
from kbevolve.evolve.state.totals import RunTotals

#: Receives one object.
Sink = Callable[[Mapping[str, Any]], None]
#: Fields that an evaluation and a confirmation share.
_SPEEDS = ("speedup", "speedup_low", "speedup_high", "time_ms", "reference_ms")
_CHAMPION = ("kernel", "generation", "purpose", "rival", *_SPEEDS)


class EventStream:
    """An observer that sends an object to each sink when a run starts, and for each kernel, generation and champion.

    Args:
        context: the run.
        device: the devices of the judges in one line.
        sinks: they get every object, in order.
    """

    def __init__(self, context: RunContext, device: str, *sinks: Sink) -> None:
        self._context, self._sinks = context, sinks
        self._generation: int | None = None
        self._champion: Confirmation | None = None
        run, search = context.run, context.settings.search
        self._send(
            "started",
            run=run.id,
            problem=run.problem_name,
            device=device,
            archive=context.archive.path,
            resumed=context.view.last_generation() is not None,
            strategy=search.strategy,
            proposer=proposer_words(context.settings),
            generations=search.generations,
            islands=search.islands,
            seed=run.seed,
            settings=context.settings.model_dump(mode="json"),
        )

    def __call__(self, event: Event) -> None:
        """Send what is new in an event."""
        if event.champion is not None and event.champion != self._champion:
            self._champion = event.champion
            self._send(
                "champion",
                **{name: getattr(event.champion, name) for name in _CHAMPION},
                note=event.champion_note,
            )
        if event.birth is not None and event.done:
            self._send("kernel", **self._attempt(event.birth, event))
        if self._generation is not None and event.generation > self._generation:
            self._close(event)
        self._generation, self._last = event.generation, event

    def stopped(self, reason: StopReason, baselines: tuple[Baseline, ...]) -> None:
        """Send the end of the session, after the last generation where the run is over."""
        if self._generation is not None and not self._is_open(reason, self._generation):
            self._close(self._last)
        self._end(reason.name.lower(), reason.value, baselines)

    def _is_open(self, reason: StopReason, generation: int) -> bool:
        """Whether the session ended within the newest generation."""
        if reason is StopReason.WALL_TIME_SPENT:
            return self._context.view.last_ended() != generation
        return reason in (StopReason.INTERRUPTED, StopReason.WAITING)

    def failed(self, message: str) -> None:
        """Send the end of a session that an error has ended."""
        reason = self._context.archive.runs.summary(self._context.run).stopped
        self._end(reason.name.lower() if reason else "failed", message)

    def _end(self, reason: str, message: str, baselines: tuple[Baseline, ...] = ()) -> None:
        archive, run = self._context.archive, self._context.run
        summary = archive.runs.summary(run)
        published = summary.champion or (summary.best and summary.best.timing)
        self._send(
            "stopped",
            run=run.id,
            reason=reason,
            message=message,
            kernel=summary.best_kernel,
            confirmed=summary.champion is not None,
            **{name: getattr(published, name, None) for name in _SPEEDS},
            kernels=summary.evaluated,
            correct=summary.correct,
            wall_seconds=archive.runs.wall_seconds(run.id),
            baselines={one.name: one.speedup for one in baselines},
        )

    def _close(self, event: Event) -> None:
        best, champion = event.best, event.champion
        published = champion or (best and best.evaluation.timing)
        self._send(
            "generation",
            generation=self._generation,
            kernel=champion.kernel if champion else best and best.kernel.id,
            speedup=published and published.speedup,
            confirmed=champion is not None,
            islands=[speedup for speedup, _ in event.islands],
            **self._counts(event.totals),
        )

    def _counts(self, totals: RunTotals) -> dict[str, Any]:
        spent = Budget.of(self._context.settings).spent(totals)
        return {
            "verdicts": {verdict.name.lower(): count for verdict, count in sorted(totals.verdicts.items()) if count},
            "attempts": {state.name.lower(): count for state, count in sorted(totals.states.items()) if count},
            "evaluations": spent.evaluations,
            "device_seconds": spent.device_seconds,
            "prompt_tokens": totals.prompt_tokens,
            "completion_tokens": totals.completion_tokens,
            "dollars": spent.dollars,
        }

    def _attempt(self, birth: Birth, event: Event) -> dict[str, Any]:
        evaluation = event.evaluation
        own = ("generation", "island", "slot", "operator", "kernel", "parents", "note", "model")
        return {
            "attempt": birth.id,
            **{name: getattr(birth, name) for name in own},
            "state": birth.state.name.lower(),
            "idea": self._context.view.idea(birth.idea).title if birth.idea else None,
            "prompt_tokens": birth.prompt_tokens,
            "completion_tokens": birth.completion_tokens,
            "verdict": evaluation and evaluation.verdict,
            "message": evaluation.message if evaluation else "",
            **{name: getattr(evaluation.timing, name) if evaluation else None for name in _SPEEDS},
            "remembered": event.remembered,
            "entered_niche": bool(event.entry),
        }

    def _send(self, kind: str, **facts: object) -> None:
        line = plain({"event": kind, "at": now(), **facts})
        for sink in self._sinks:
            sink(line)
