"""What people and agents tell, brought into the form in which a model would have answered, and into the archive.

From there it goes the way of every answer: the same parsing, the same follow-up when it cannot be used, the same judge.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kbevolve.archive.conversations import Answer, Outcome, Question, Stage, parse_id
from kbevolve.archive.records import Operator, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.proposers.codegen.ideas import parse_ideas

#: Who told, when nobody says.
SOMEBODY = "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An answer as it is given: a reply, or an idea, code or both, or nothing at all to pass."""

    #: Id of the question, with its run or without.
    question: str
    #: The whole answer in text, as a model would give it.
    reply: str | None = None
    #: An idea: "title: why it is faster", or JSON as the question asks for it.
    idea: str | None = None
    #: A whole ModelNew file.
    code: str | None = None
    #: No answer: the child goes on without, or ends.
    passed: bool = False
    #: Name of a person or an agent, kept as a model's name is.
    by: str = SOMEBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An answer that was not taken, and why."""

    question: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of answers."""

    #: Ids of the questions.
    taken: tuple[str, ...] = ()
    #: Those whose answer was there already, the same.
    known: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    #: Runs that can go on.
    runs: tuple[str, ...] = ()


def answer(archive: Archive, told: Sequence[Told], run: Run | None = None) -> Receipt:
    """Write answers down; each stands alone, and what is wrong with one is no matter to the others.

    Args:
        archive: where the questions were asked.
        told: the answers.
        run: of which run an id is that names none.
    """
    taken: dict[Outcome, list[str]] = {Outcome.TAKEN: [], Outcome.KNOWN: []}
    refused, runs = [], []
    for one in told:
        try:
            question = _question(archive, one, run)
            text, following = composed(one, question)
        except (UsageError, ArchiveError) as error:
            refused.append(Refused(question=one.question, why=str(error)))
            continue
        by = one.by.strip() or SOMEBODY
        outcome = archive.questions(archive.run(question.run)).tell(
            Answer(run=question.run, place=question.place, text=text, following=following, by=by)
        )
        if outcome in taken:
            taken[outcome].append(question.id)
            runs.append(question.run)
        else:
            refused.append(Refused(question=question.id, why=outcome.value))
    return Receipt(
        taken=tuple(taken[Outcome.TAKEN]),
        known=tuple(taken[Outcome.KNOWN]),
        refused=tuple(refused),
        runs=tuple(dict.fromkeys(runs)),
    )


def composed(told: Told, question: Question) -> tuple[str, str | None]:
    """The text that answers a question, and the one that answers the next request of its child, None for none.

    Raises:
        UsageError: it is no answer to this question.
    """
    given = [name for name in ("reply", "idea", "code") if getattr(told, name) is not None]
    if bool(given) == told.passed or ("reply" in given and len(given) > 1):
        raise UsageError("an answer is a whole reply, or an idea, code or both, or it passes; give one of these")
    if told.passed:
        return "", "" if question.stage is Stage.IDEA else None
    if told.reply is not None:
        return told.reply, None
    code = None if told.code is None else _fenced(told.code)
    if question.stage is Stage.IDEA:
        if not (told.idea or "").strip():
            raise UsageError("it asks for an idea; give one, with the code if that is there already")
        return _as_json(str(told.idea)), code
    if code is None:
        raise UsageError("it asks for code that carries out an idea; give the file, or a whole reply")
    if told.idea is not None and question.operator is not Operator.CROSS:
        raise UsageError("it asks for code, and the idea of its child is decided; give the code alone")
    return (f"IDEA: {' '.join(told.idea.split())}\n\n{code}" if told.idea else code), None


def read_answers(file: Path) -> list[Told]:
    """Answers from a file: a JSON array of objects, or one object a line, with the fields of `Told`.

    Raises:
        UsageError: it cannot be read, or holds something else.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; --answers wants a file of JSON") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text; --answers wants a file of JSON") from None
    return [_told(entry, file, number) for number, entry in _entries(text, file)]


def _entries(text: str, file: Path) -> Iterator[tuple[int, Any]]:
    """Number and value of every entry."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if whole is not None:
        yield from enumerate(whole if isinstance(whole, list) else [whole], start=1)
        return
    # Not splitlines: some characters that it takes for line ends may stand in JSON as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{file}, line {number}: not JSON: {error}") from None


def _told(entry: Any, file: Path, number: int) -> Told:
    known = {field.name for field in fields(Told)}
    where = f"{file}, entry {number}"
    if not isinstance(entry, Mapping) or entry.get("question") is None:
        raise UsageError(f"{where}: no object with a `question`; its fields are {', '.join(sorted(known))}")
    unknown = sorted(entry.keys() - known)
    if unknown:
        raise UsageError(f"{where}: unknown field {unknown[0]!r}; there are {', '.join(sorted(known))}")
    values = {name: value for name, value in entry.items() if value is not None}
    if isinstance(values.get("idea"), Mapping | list):
        values["idea"] = json.dumps(values["idea"])
    for name, value in values.items():
        if not isinstance(value, bool if name == "passed" else str):
            raise UsageError(f"{where}: {name} is {value!r}; it wants {'true' if name == 'passed' else 'text'}")
    return Told(**values)


def _question(archive: Archive, told: Told, run: Run | None) -> Question:
    found = parse_id(told.question)
    if found is None:
        raise UsageError(f"{told.question!r} is no question; ids are as `kbevolve ask` prints them, e.g. g3/i1/s0/q1")
    named, place = found
    asked_of = archive.run(named) if named else run or archive.run("latest")
    question = archive.questions(asked_of).asked(place)
    if question is None:
        raise UsageError(Outcome.UNASKED.value)
    return question


def _as_json(idea: str) -> str:
    """An idea as the prompt wants it; what cannot be read as JSON is "title: mechanism"."""
    if parse_ideas(idea, load_playbook(), proposed_by=""):
        return idea
    title, *mechanism = re.split(r":\s|\n", idea.strip(), maxsplit=1)
    return json.dumps([{"title": title, "mechanism": mechanism[0].strip() if mechanism else title}])


def _fenced(code: str) -> str:
    """A file in a fence that nothing in the file closes."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code.rstrip()}\n{fence}\n"
