"""How far a run is, from the archive alone: what another terminal can see while it goes on."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import BirthState, Confirmation, Evaluation, Run, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.runs.lock import lock_holder

#: Attempts that are listed.
RECENT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run at one moment."""

    run: str
    problem: str
    device: str
    #: The process of this user on this machine that works on it; None where there is none.
    process: int | None
    #: Why it stopped; None while it goes on, or when its process was killed.
    stopped: StopReason | None
    #: The newest generation, and the one that the run was started to reach.
    generation: int
    generations: int
    #: Attempts by state; kernels by verdict, the best verdict first; kernels that wait for a verdict.
    attempts: Mapping[str, int]
    verdicts: Mapping[str, int]
    unjudged: int
    #: The published kernel, and its first evaluation and confirmation; None while nothing is correct.
    kernel: str | None
    best: Evaluation | None
    champion: Confirmation | None
    prompt_tokens: int
    completion_tokens: int
    #: Seconds of all sessions, up to the newest fact; kernels judged an hour of them, None before the first.
    wall_seconds: float
    kernels_per_hour: float | None
    #: Seconds since the run has recorded anything.
    silent_seconds: float
    #: The newest attempts, the newest last.
    recent: tuple[OutlineEntry, ...]


def status_of(archive: Archive, run: Run) -> RunStatus:
    """The status of a run; reads only."""
    summary, entries = archive.runs.summary(run), archive.outline(run)
    verdicts = Counter({one.kernel: one.verdict for one in entries if one.kernel and one.verdict is not None}.values())
    states = Counter(one.state for one in entries)
    wall, judged = archive.runs.wall_seconds(run.id), verdicts.total()
    sent, received = archive.runs.tokens(run.id)
    newest = archive.runs.newest_fact(run.id) or run.created
    return RunStatus(
        run=run.id,
        problem=run.problem_name,
        device=run.device,
        process=lock_holder(archive, run),
        stopped=summary.stopped,
        generation=summary.generations,
        generations=int(json.loads(run.settings).get("search", {}).get("generations", 0)),
        attempts={state.name.lower(): states[state] for state in BirthState if states[state]},
        verdicts={verdict.name.lower(): verdicts[verdict] for verdict in reversed(Verdict) if verdicts[verdict]},
        unjudged=len({one.kernel for one in entries if one.verdict is None and one.state is BirthState.CREATED}),
        kernel=summary.best_kernel,
        best=summary.best,
        champion=summary.champion,
        prompt_tokens=sent,
        completion_tokens=received,
        wall_seconds=wall,
        kernels_per_hour=judged / wall * 3600 if judged and wall else None,
        silent_seconds=(datetime.now(UTC) - datetime.fromisoformat(newest)).total_seconds(),
        recent=entries[-RECENT:],
    )
