"""What a run asks, as plain values: for `kbevolve ask`, for agents, for whoever writes a client.

A question that is on a sheet is handed out: from then on it can be answered.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbevolve.archive.parts import flat
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Evaluation, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.ask_tell.ask import AskResult, AttemptNews
from kbevolve.evolve.proposers.interactive import OpenQuestion

#: Facts of an evaluation that tell somebody who wrote the kernel how it fared.
_TOLD = ("verdict", "message", "speedup", "speedup_low", "speedup_high", "time_ms", "reference_ms", "tags")


def sheet(
    archive: Archive, asked: AskResult, *, count: int | None = None, fresh: bool = False, prompts: Path | None = None
) -> dict[str, Any]:
    """What a run asks, how far it got, and what happened meanwhile. None and empty values are left out of the news.

    Args:
        archive: where the run is.
        asked: how far it got.
        count: questions on the sheet at most; None for all.
        fresh: only questions that nobody was handed before, so that several who ask do not share any.
        prompts: a folder for the prompts, a text file each, instead of on the sheet.

    Raises:
        ArchiveError: the folder cannot be written.
    """
    questions = archive.questions(asked.run)
    found = archive.evaluations(asked.run.id) if asked.open else {}
    candidates = [one for one in asked.open if not (fresh and questions.asked(one.question.place))][:count]
    shown = [
        {**_question(one, found), "asked_before": first.asked or None, **_prompt(one, prompts)}
        for one, first in zip(candidates, questions.hand_out([one.question for one in candidates]), strict=True)
        if not (fresh and first.asked)  # another process was quicker
    ]
    summary = archive.summary(asked.run)
    best = {"kernel": summary.best_kernel, "speedup": summary.best_speedup, "confirmed": summary.champion is not None}
    sheet: dict[str, Any] = plain(
        {
            "run": asked.run.id,
            "problem": asked.run.problem_name,
            "device": asked.run.device,
            "over": asked.over,
            "state": _state(asked),
            "generation": summary.generations,
            "best": best if summary.best_kernel else None,
            "news": [_news(one) for one in _once(asked.news)],
            "questions": shown,
            "open": len(asked.open),
            "waiting": [{"kernel": one.kernel.id, "child": one.birth.id.partition("/")[2]} for one in asked.waiting],
        }
    )
    return sheet


def _state(asked: AskResult) -> str:
    """One sentence on what is to be done."""
    if asked.interrupted:
        return asked.reason.value
    if asked.over:
        return f"over: {asked.reason.value}"
    parts = []
    if asked.open:
        parts.append(f"{len(asked.open)} question{'s are' if len(asked.open) > 1 else ' is'} open")
    if asked.waiting:
        parts.append(f"{len(asked.waiting)} kernel{'s wait' if len(asked.waiting) > 1 else ' waits'} for a verdict")
    return " and ".join(parts) or "a contest waits for a judge: ask where the device is, without --no-judge"


def _question(one: OpenQuestion, found: Mapping[str, Evaluation]) -> dict[str, Any]:
    parents = [{"kernel": parent, **_facts(found.get(parent), ("verdict", "speedup"))} for parent in one.parents]
    return {
        "question": one.question.id,
        "stage": one.question.stage.value,
        "operator": one.question.operator.value,
        "child": one.question.place.child,
        "parents": parents,
        **({"note": one.note} if one.note else {}),
    }


def _prompt(one: OpenQuestion, folder: Path | None) -> dict[str, Any]:
    """The prompt as it stands, or the file that holds it."""
    if folder is None:
        return {"system": one.system, "messages": [asdict(message) for message in one.messages]}
    turns = [f"[system]\n{one.system.rstrip()}"]
    turns += [f"[{message.role}]\n{message.content.rstrip()}" for message in one.messages]
    file = folder / f"{str(one.question.place).replace('/', '-')}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text("\n\n".join(turns) + "\n", encoding="utf-8", errors="replace")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ArchiveError(f"{file}: {reason}; name a folder where you may write: --prompts DIR") from None
    return {"prompt": str(file)}


def _once(news: Sequence[AttemptNews]) -> Iterator[AttemptNews]:
    """Without starting kernels that another island began with, too."""
    seen = set()
    for one in news:
        if one.birth.operator is not Operator.SEED or one.birth.kernel not in seen:
            seen.add(one.birth.kernel)
            yield one


def _news(one: AttemptNews) -> dict[str, Any]:
    birth = one.birth
    facts = {
        "child": birth.id.partition("/")[2],
        "operator": birth.operator.value,
        "state": birth.state.value,
        "kernel": birth.kernel,
        "by": birth.model or None,
        "note": birth.note or None,
    }
    return {name: value for name, value in facts.items() if value is not None} | _facts(one.evaluation, _TOLD)


def _facts(evaluation: Evaluation | None, names: tuple[str, ...]) -> dict[str, Any]:
    """What is known, by name; nothing without an evaluation."""
    facts = {} if evaluation is None else {name: flat(evaluation)[name] for name in names}
    return {name: value for name, value in facts.items() if value not in (None, "", ())}
