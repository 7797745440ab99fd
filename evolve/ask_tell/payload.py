"""The JSON of `kbevolve ask`, for agents and scripts.

A question in it counts as asked: from then on it can be answered.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbevolve.archive.formatting import counted
from kbevolve.archive.parts import flat
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Birth, Evaluation, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.ask_tell.ask import AskResult, AttemptNews
from kbevolve.evolve.proposers.interactive import OpenQuestion

#: Facts of an evaluation that the author of the kernel gets, and those of a parent.
_RESULT = ("verdict", "message", "speedup", "speedup_low", "speedup_high", "time_ms", "reference_ms", "tags")
_PARENT = ("verdict", "speedup")


def payload_of(
    archive: Archive, result: AskResult, *, count: int | None = None, fresh: bool = False, prompts: Path | None = None
) -> dict[str, Any]:
    """What a run asks, how far it is, and what is new.

    Args:
        archive: where the run is.
        result: how far it is.
        count: the largest number of questions; None for all.
        fresh: only questions that were not asked before, so that several askers share none.
        prompts: a folder for the prompts, a text file each.

    Raises:
        ArchiveError: the folder cannot be written.
    """
    questions = archive.questions(result.run)
    found = archive.runs.evaluations(result.run.id) if result.open else {}
    candidates = [one for one in result.open if not (fresh and questions.asked(one.question.place))][:count]
    shown = [
        _question(one, found, first.asked or None, prompts)
        for one, first in zip(candidates, questions.hand_out([one.question for one in candidates]), strict=True)
        if not (fresh and first.asked)  # another process was quicker
    ]
    summary = archive.runs.summary(result.run)
    confirmed = summary.champion is not None
    best = {"kernel": summary.best_kernel, "speedup": summary.best_speedup, "confirmed": confirmed}
    payload: dict[str, Any] = plain(
        {
            "run": result.run.id,
            "problem": result.run.problem_name,
            "device": result.run.device,
            "over": result.over,
            "state": _state(result),
            "generation": summary.generations,
            "best": best if summary.best_kernel else None,
            "news": [_news(birth, evaluation) for birth, evaluation in _once(result.news)],
            "questions": shown,
            "open": len(result.open),
            "waiting": [{"kernel": kernel.id, "child": _child(birth.id)} for birth, kernel in result.waiting],
        }
    )
    return payload


def _state(result: AskResult) -> str:
    if result.interrupted:
        return result.reason.value
    if result.over:
        return f"over: {result.reason.value}"
    parts = []
    if result.open:
        parts.append(f"{counted(len(result.open), 'question is', 'questions are')} open")
    if result.waiting:
        parts.append(f"{counted(len(result.waiting), 'kernel waits', 'kernels wait')} for a verdict")
    return " and ".join(parts) or "a contest waits for a judge: ask where the device is, without --no-judge"


def _child(birth: str) -> str:
    """The id of an attempt without its run."""
    return birth.partition("/")[2]


def _question(
    one: OpenQuestion, found: Mapping[str, Evaluation], asked_before: str | None, prompts: Path | None
) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "question": one.question.id,
        "stage": one.question.stage.value,
        "operator": one.question.operator.value,
        "child": one.question.place.child,
        "parents": [{"kernel": parent, **_facts(found.get(parent), _PARENT)} for parent in one.parents],
        # The moment; None when this is the first time.
        "asked_before": asked_before,
    }
    if one.note:
        payload["note"] = one.note
    if prompts is not None:
        return payload | {"prompt": _write_prompt(one, prompts)}
    messages = [{"role": message.role, "content": message.content} for message in one.messages]
    return payload | {"system": one.system, "messages": messages}


def _write_prompt(one: OpenQuestion, folder: Path) -> str:
    """The name of the file with the prompt."""
    turns = [("system", one.system), *((message.role, message.content) for message in one.messages)]
    text = "\n\n".join(f"[{role}]\n{content.rstrip()}" for role, content in turns)
    file = folder / f"{str(one.question.place).replace('/', '-')}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8", errors="replace")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ArchiveError(f"{file}: {reason}; name a folder where you may write: --prompts DIR") from None
    return str(file)


def _once(news: Sequence[AttemptNews]) -> Iterator[AttemptNews]:
    """Each starting kernel once, however many islands start with it."""
    seen = set()
    for birth, evaluation in news:
        if birth.operator is not Operator.SEED or birth.kernel not in seen:
            seen.add(birth.kernel)
            yield birth, evaluation


def _news(birth: Birth, evaluation: Evaluation | None) -> dict[str, Any]:
    facts = {
        "child": _child(birth.id),
        "operator": birth.operator.value,
        "state": birth.state.value,
        "kernel": birth.kernel,
        "by": birth.model,
        "note": birth.note,
    }
    return {name: value for name, value in facts.items() if value} | _facts(evaluation, _RESULT)


def _facts(evaluation: Evaluation | None, names: Sequence[str]) -> dict[str, Any]:
    """Known facts by name; empty without an evaluation."""
    facts = {} if evaluation is None else {name: flat(evaluation)[name] for name in names}
    return {name: value for name, value in facts.items() if value not in (None, "", ())}
