"""What is asked of people and agents outside, and what they told: each question once, and its first answer for ever.

A question is one request of one child; it is written down when it is handed out, and only such a question can be
answered. Its id follows from the child, so asking again asks the same.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from kbevolve.archive.connection import Connection
from kbevolve.archive.records import Operator

_KEY = "run, generation, island, slot, number"
_ID = re.compile(r"(?:(?P<run>[^/\s]+)/)?g(\d+)/i(\d+)/s(\d+)/q(\d+)")


class Place(NamedTuple):
    """Which birth of a run, and which request for it."""

    generation: int
    island: int
    slot: int
    #: 1 for the first request of the child, 2 for the next, …
    number: int

    @property
    def child(self) -> str:
        """The birth's place, e.g. ``g3/i1/s0``."""
        return f"g{self.generation}/i{self.island}/s{self.slot}"

    def __str__(self) -> str:
        return f"{self.child}/q{self.number}"


class Stage(StrEnum):
    """What a question asks for."""

    IDEA = "idea"  # ideas in words
    CODE = "code"  # a whole file, or edits of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that was handed out, or is about to be."""

    run: str
    place: Place
    #: What the child is asked for as.
    operator: Operator
    stage: Stage
    #: Moment it was first handed out, UTC, ISO 8601; "" when it never was.
    asked: str = ""

    @property
    def id(self) -> str:
        """Natural key, e.g. ``matmul-20261121-083012-3f2a/g3/i1/s0/q1``."""
        return f"{self.run}/{self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody told."""

    run: str
    place: Place
    #: The answer, as a model would have given it; "" passes.
    text: str
    #: The answer to the child's next request, told at once; None when only this one was answered.
    following: str | None = None
    #: Who told it.
    by: str
    #: Moment it was told; "" before it is written down.
    at: str = ""


class Outcome(Enum):
    """What became of an answer; the value is the reason for people."""

    TAKEN = "it was taken"
    KNOWN = "the same answer is there already"
    TWICE = "another answer was told before, and the first one counts"
    LATE = "the child was born without it meanwhile"
    UNASKED = "nobody was asked that; `kbevolve ask` shows what is open"


def parse_id(text: str) -> tuple[str | None, Place] | None:
    """The run (None when it is left out) and the place that an id names; None when it is no id."""
    found = _ID.fullmatch(text.strip())
    return found and (found["run"], Place(*map(int, found.groups()[1:])))


class Questions:
    """The questions and answers of one run. Threads may share it.

    Args:
        connection: the open archive.
        run_id: the run, which must be there.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self.run = run_id

    def asked(self, place: Place) -> Question | None:
        """A question that was handed out; None when it was not."""
        row = self._connection.row(f"select * from questions where ({_KEY}) = (?, ?, ?, ?, ?)", self.run, *place)
        if row is None:
            return None
        return Question(
            run=self.run,
            place=place,
            operator=Operator[row["operator"]],
            stage=Stage[row["stage"]],
            asked=row["at"],
        )

    def hand_out(self, questions: Sequence[Question]) -> list[Question]:
        """Write down that these are asked; each comes back with the moment of the first time, "" when that is now."""
        handed = []
        with self._connection.transaction():
            for question in questions:
                known = self.asked(question.place)
                if known is None:
                    row = {"operator": question.operator.name, "stage": question.stage.name, "at": _now()}
                    self._connection.insert("questions", {**self._key(question.place), **row})
                handed.append(replace(question, asked=known.asked if known else ""))
        return handed

    def answer(self, place: Place) -> Answer | None:
        """What was told; None while nothing was."""
        row = self._connection.row(f"select * from answers where ({_KEY}) = (?, ?, ?, ?, ?)", self.run, *place)
        if row is None:
            return None
        fields = {name: row[name] for name in ("text", "following", "by", "at")}
        return Answer(run=self.run, place=place, **fields)

    def tell(self, answer: Answer) -> Outcome:
        """Write an answer down, if its question was handed out, is open, and its child was not born yet."""
        place = answer.place
        with self._connection.transaction():
            if self.asked(place) is None:
                return Outcome.UNASKED
            known = self.answer(place)
            if known is not None:
                same = (known.text, known.following) == (answer.text, answer.following)
                return Outcome.KNOWN if same else Outcome.TWICE
            if self._born(place):
                return Outcome.LATE
            row = {name: asdict(answer)[name] for name in ("text", "following", "by")}
            self._connection.insert("answers", {**self._key(place), **row, "at": _now()})
        return Outcome.TAKEN

    def unused(self) -> int:
        """How many answers no child has used yet."""
        row = self._connection.row(
            "select count(*) from answers where run = ? and not exists (select 1 from births where"
            " births.run = answers.run and births.generation = answers.generation"
            " and births.island = answers.island and births.slot = answers.slot)",
            self.run,
        )
        return row[0] if row else 0

    def _born(self, place: Place) -> bool:
        row = self._connection.row(
            "select 1 from births where run = ? and generation = ? and island = ? and slot = ?", self.run, *place[:3]
        )
        return row is not None

    def _key(self, place: Place) -> dict[str, Any]:
        return {"run": self.run, **place._asdict()}


class Replies:
    """The answers that a run had. Threads may share it.

    Args:
        connection: the open archive.
        run_id: the run, which must be there.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self._run = run_id

    def get(self, digest: str) -> str | None:
        """The answer to the request of this digest, as it was given to `keep`; None when there is none."""
        row = self._connection.row("select reply from replies where run = ? and digest = ?", self._run, digest)
        return None if row is None else str(row["reply"])

    def keep(self, digest: str, reply: str) -> None:
        """Write an answer down; it is there when this returns. A request that has one keeps it."""
        row = {"run": self._run, "digest": digest, "reply": reply}
        with self._connection.transaction():
            self._connection.insert("replies", {**row, "at": _now()}, known="run, digest")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
