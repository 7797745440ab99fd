"""Answers of people and agents: brought into the form in which a model would answer, and written to the archive.

From there they are treated like a model's answers: same parsing, same second request when useless, same judge.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kbevolve.archive.conversations import AnswerStatus, Question, QuestionAnswer, QuestionStage, parse_id
from kbevolve.archive.record_json import from_json
from kbevolve.archive.records import Operator, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, RecordError, UsageError
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.text_file import read_text
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas

#: The name of an author who gives none.
ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer as it was given: a whole reply; an idea, code or both; or `passed`."""

    #: Id of the question, with or without its run.
    question: str
    #: The whole answer, as a model would write it.
    reply: str | None = None
    #: "title: why it is faster", or JSON as the question asks for it.
    idea: str | None = None
    #: A whole ModelNew file.
    code: str | None = None
    #: No answer: the attempt ends without one.
    passed: bool = False
    #: Name of the person or agent, kept as a model's name is.
    by: str = ANONYMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAnswer:
    """An answer that was not accepted."""

    question: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReport:
    """Which answers were accepted."""

    #: Ids of the questions.
    taken: tuple[str, ...] = ()
    #: Questions that already had the same answer.
    known: tuple[str, ...] = ()
    refused: tuple[RefusedAnswer, ...] = ()
    #: Runs that can continue.
    runs: tuple[str, ...] = ()


def answer(archive: Archive, given: Sequence[GivenAnswer], run: Run | None = None) -> AnswerReport:
    """Write answers to the archive. A refused one does not affect the others.

    `run` is the run of ids that name none; None for the latest one.
    """
    taken: dict[AnswerStatus, list[str]] = {AnswerStatus.TAKEN: [], AnswerStatus.KNOWN: []}
    refused, runs = [], []
    for one in given:
        try:
            question = _question(archive, one, run)
            text, following = composed(one, question)
        except (UsageError, ArchiveError) as error:
            refused.append(RefusedAnswer(question=one.question, why=str(error)))
            continue
        by = one.by.strip() or ANONYMOUS
        outcome = archive.questions(archive.runs.get(question.run)).tell(
            question.place, QuestionAnswer(text=text, following=following, by=by)
        )
        if outcome in taken:
            taken[outcome].append(question.id)
            runs.append(question.run)
        else:
            refused.append(RefusedAnswer(question=question.id, why=outcome.value))
    return AnswerReport(
        taken=tuple(taken[AnswerStatus.TAKEN]),
        known=tuple(taken[AnswerStatus.KNOWN]),
        refused=tuple(refused),
        runs=tuple(dict.fromkeys(runs)),
    )


def composed(given: GivenAnswer, question: Question) -> tuple[str, str | None]:
    """The text that answers a question, and the text that answers the next request of its child; None for none.

    Raises:
        UsageError: it does not answer this question.
    """
    parts = [name for name in ("reply", "idea", "code") if getattr(given, name) is not None]
    if bool(parts) == given.passed or ("reply" in parts and len(parts) > 1):
        raise UsageError("an answer is a whole reply, or an idea, code or both, or it passes; give one of these")
    if given.passed:
        return "", "" if question.stage is QuestionStage.IDEA else None
    if given.reply is not None and not given.reply.strip():
        raise UsageError("the reply is empty; --pass leaves the question without an answer")
    if given.reply is not None:
        return given.reply, None
    code = None if given.code is None else _fenced(given.code)
    if question.stage is QuestionStage.IDEA:
        if not (given.idea or "").strip():
            raise UsageError("it asks for an idea; give one, with the code if you have it already")
        return _as_json(str(given.idea)), code
    if code is None:
        raise UsageError("it asks for code that carries out an idea; give the file, or a whole reply")
    if given.idea is not None and question.operator is not Operator.CROSS:
        raise UsageError("it asks for code, and the idea of its child is decided; give the code alone")
    return (f"IDEA: {' '.join(given.idea.split())}\n\n{code}" if given.idea else code), None


def read_answers(file: Path) -> list[GivenAnswer]:
    """Answers from a file: a JSON array of objects, or one object a line, with the fields of `GivenAnswer`.

    Raises:
        UsageError: it cannot be read, or has another form.
    """
    text = read_text(file, option="--answers", wants="file of JSON")
    return [_given(entry, f"{file}, entry {number}") for number, entry in _entries(text, file)]


def _entries(text: str, file: Path) -> Iterator[tuple[int, Any]]:
    """Number and value of every entry."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if whole is not None:
        yield from enumerate(whole if isinstance(whole, list) else [whole], start=1)
        return
    # Not splitlines: it also splits at characters that JSON allows inside strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{file}, line {number}: not JSON: {error}") from None


def _given(entry: Any, where: str) -> GivenAnswer:
    values = entry
    if isinstance(entry, Mapping):
        values = {name: value for name, value in entry.items() if value is not None}
        if isinstance(values.get("idea"), Mapping | list):
            values["idea"] = json.dumps(values["idea"])
    try:
        return from_json(GivenAnswer, values)
    except RecordError as error:
        known = ", ".join(sorted(field.name for field in fields(GivenAnswer)))
        raise UsageError(f"{where}: {error}; the fields are {known}") from None


def _question(archive: Archive, given: GivenAnswer, run: Run | None) -> Question:
    found = parse_id(given.question)
    if found is None:
        raise UsageError(
            f"{given.question!r} is not the id of a question; `kbevolve ask` prints them, e.g. g3/i1/s0/q1"
        )
    named, place = found
    of_run = archive.runs.get(named) if named else run or archive.runs.get("latest")
    question = archive.questions(of_run).asked(place)
    if question is None:
        raise UsageError(AnswerStatus.UNASKED.value)
    return question


def _as_json(idea: str) -> str:
    """An idea as the prompt wants it; text that is not JSON is "title: mechanism"."""
    if parse_ideas(idea, load_playbook(), proposed_by=""):
        return idea
    title, *mechanism = re.split(r":\s|\n", idea.strip(), maxsplit=1)
    return json.dumps([{"title": title, "mechanism": mechanism[0].strip() if mechanism else title}])


def _fenced(code: str) -> str:
    """A file inside a code fence that is longer than any in the file."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code.rstrip()}\n{fence}\n"
