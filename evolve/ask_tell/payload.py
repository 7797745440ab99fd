"""The JSON of `kbevolve ask`, for agents and scripts.

A question in it counts as asked: from then on it can be answered.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from kbevolve.archive.parts import flat
from kbevolve.archive.record_json import plain
from kbevolve.archive.records import Evaluation, Operator
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.ask_tell.ask import AskResult, AttemptNews
from kbevolve.evolve.proposers.interactive import OpenQuestion

#: Facts of an evaluation that the author of the kernel gets, and those of a parent.
_RESULT = ("verdict", "message", "speedup", "speedup_low", "speedup_high", "time_ms", "reference_ms", "tags")
_PARENT = ("verdict", "speedup")


class QuestionPayload(TypedDict):
    """An open question with everything that a model would receive."""

    question: str
    stage: str
    operator: str
    child: str
    #: `kernel`, and `verdict` and `speedup` where they are known.
    parents: list[dict[str, Any]]
    note: NotRequired[str]
    #: Moment of the first time that it was asked; None when this is the first time.
    asked_before: str | None
    #: Either both of these …
    system: NotRequired[str]
    messages: NotRequired[list[dict[str, str]]]
    #: … or the name of a text file.
    prompt: NotRequired[str]


class BestPayload(TypedDict):
    """The best kernel of the run."""

    kernel: str
    speedup: float | None
    #: Whether it has won a contest.
    confirmed: bool


class PendingPayload(TypedDict):
    """A kernel without a verdict."""

    kernel: str
    child: str


class AskPayload(TypedDict):
    """Everything that `kbevolve ask` prints."""

    run: str
    problem: str
    device: str
    over: bool
    #: One sentence on what is to be done.
    state: str
    generation: int | None
    best: BestPayload | None
    #: New attempts: `child`, `operator`, `state`, `kernel`, `by`, `note` and facts of the evaluation, where known.
    news: list[dict[str, Any]]
    questions: list[QuestionPayload]
    #: How many questions are open, in `questions` or not.
    open: int
    waiting: list[PendingPayload]


def payload_of(
    archive: Archive, result: AskResult, *, count: int | None = None, fresh: bool = False, prompts: Path | None = None
) -> AskPayload:
    """What a run asks, how far it is, and what is new.

    Args:
        archive: where the run is.
        result: how far it is.
        count: the largest number of questions; None for all.
        fresh: only questions that were not asked before, so that several askers share none.
        prompts: a folder for the prompts, a text file each, instead of in the payload.

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
    summary, best = archive.runs.summary(result.run), None
    if summary.best_kernel:
        confirmed = summary.champion is not None
        best = BestPayload(kernel=summary.best_kernel, speedup=summary.best_speedup, confirmed=confirmed)
    payload: AskPayload = plain(
        AskPayload(
            run=result.run.id,
            problem=result.run.problem_name,
            device=result.run.device,
            over=result.over,
            state=_state(result),
            generation=summary.generations,
            best=best,
            news=[_news(one) for one in _once(result.news)],
            questions=shown,
            open=len(result.open),
            waiting=[PendingPayload(kernel=one.kernel.id, child=_child(one.birth.id)) for one in result.waiting],
        )
    )
    return payload


def _state(result: AskResult) -> str:
    if result.interrupted:
        return result.reason.value
    if result.over:
        return f"over: {result.reason.value}"
    parts = []
    if result.open:
        parts.append(f"{len(result.open)} question{'s are' if len(result.open) > 1 else ' is'} open")
    if result.waiting:
        parts.append(f"{len(result.waiting)} kernel{'s wait' if len(result.waiting) > 1 else ' waits'} for a verdict")
    return " and ".join(parts) or "a contest waits for a judge: ask where the device is, without --no-judge"


def _child(birth: str) -> str:
    """The id of an attempt without its run."""
    return birth.partition("/")[2]


def _question(
    one: OpenQuestion, found: Mapping[str, Evaluation], asked_before: str | None, prompts: Path | None
) -> QuestionPayload:
    payload = QuestionPayload(
        question=one.question.id,
        stage=one.question.stage.value,
        operator=one.question.operator.value,
        child=one.question.place.child,
        parents=[{"kernel": parent, **_facts(found.get(parent), _PARENT)} for parent in one.parents],
        asked_before=asked_before,
    )
    if one.note:
        payload["note"] = one.note
    if prompts is None:
        payload["system"] = one.system
        payload["messages"] = [{"role": message.role, "content": message.content} for message in one.messages]
    else:
        payload["prompt"] = _write_prompt(one, prompts)
    return payload


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
    for one in news:
        if one.birth.operator is not Operator.SEED or one.birth.kernel not in seen:
            seen.add(one.birth.kernel)
            yield one


def _news(one: AttemptNews) -> dict[str, Any]:
    birth = one.birth
    facts = {
        "child": _child(birth.id),
        "operator": birth.operator.value,
        "state": birth.state.value,
        "kernel": birth.kernel,
        "by": birth.model or None,
        "note": birth.note or None,
    }
    return {name: value for name, value in facts.items() if value is not None} | _facts(one.evaluation, _RESULT)


def _facts(evaluation: Evaluation | None, names: Sequence[str]) -> dict[str, Any]:
    """Known facts by name; empty without an evaluation."""
    facts = {} if evaluation is None else {name: flat(evaluation)[name] for name in names}
    return {name: value for name, value in facts.items() if value not in (None, "", ())}
