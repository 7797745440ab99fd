"""Requests and their replies: questions to people and agents outside, and what models replied.

A question is one request for one child. It is recorded when it is shown, only a recorded question can be answered, and
its first answer is final. Its id follows from the child, so asking again asks the same.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, NamedTuple

from kbevolve.archive import rows
from kbevolve.archive.connection import Connection, now
from kbevolve.archive.records import Operator

_KEY = "run, generation, island, slot, number"
_ID = re.compile(r"(?:(?P<run>[^/\s]+)/)?g(\d+)/i(\d+)/s(\d+)/q(\d+)")


class RequestPlace(NamedTuple):
    """A request: which birth of a run, and which request for that birth."""

    generation: int
    island: int
    slot: int
    #: 1 for the first request of the child, 2 for the next, …
    number: int

    @property
    def child(self) -> str:
        """The birth, e.g. ``g3/i1/s0``."""
        return f"g{self.generation}/i{self.island}/s{self.slot}"

    def __str__(self) -> str:
        return f"{self.child}/q{self.number}"


class QuestionStage(StrEnum):
    """What a question asks for."""

    IDEA = "idea"  # ideas in words
    CODE = "code"  # a whole file, or edits of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that was shown, or is about to be."""

    run: str
    place: RequestPlace
    #: How the child is to be made.
    operator: Operator
    stage: QuestionStage
    #: Moment it was first shown, UTC, ISO 8601; "" when it never was.
    asked: str = ""

    @property
    def id(self) -> str:
        """Natural key, e.g. ``matmul-20261121-083012-3f2a/g3/i1/s0/q1``."""
        return f"{self.run}/{self.place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswer:
    """An answer from outside."""

    #: The answer, as a model would have given it; "" declines to answer.
    text: str
    #: The answer to the child's next request, given with this one; None without it.
    following: str | None = None
    #: Name of the person or agent.
    by: str


class AnswerStatus(Enum):
    """Whether an answer was recorded; the value is the reason for people."""

    TAKEN = "it was recorded"
    KNOWN = "the same answer is recorded already"
    TWICE = "another answer was recorded before, and the first one counts"
    LATE = "the child was created without it meanwhile"
    UNASKED = "this question was never asked; `kbevolve ask` shows the open ones"


def parse_id(text: str) -> tuple[str | None, RequestPlace] | None:
    """The run (None when it is left out) and the place that an id names; None when it is no id."""
    found = _ID.fullmatch(text.strip())
    return found and (found["run"], RequestPlace(*map(int, found.groups()[1:])))


class Questions:
    """The questions and answers of one run of the archive. Threads may share it."""

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self.run = run_id

    def asked(self, place: RequestPlace) -> Question | None:
        """A recorded question; None when it was never shown."""
        row = self._connection.row(f"select * from questions where ({_KEY}) = (?, ?, ?, ?, ?)", self.run, *place)
        if row is None:
            return None
        return Question(
            run=self.run,
            place=place,
            operator=Operator[row["operator"]],
            stage=QuestionStage[row["stage"]],
            asked=row["at"],
        )

    def hand_out(self, questions: Sequence[Question]) -> list[Question]:
        """Record that these are shown; each is returned with the moment of the first time, "" when that is now."""
        handed = []
        with self._connection.transaction():
            for question in questions:
                known = self.asked(question.place)
                if known is None:
                    row = {"operator": question.operator.name, "stage": question.stage.name, "at": now()}
                    self._connection.insert("questions", {**self._key(question.place), **row})
                handed.append(replace(question, asked=known.asked if known else ""))
        return handed

    def answer(self, place: RequestPlace) -> QuestionAnswer | None:
        """The recorded answer; None without one."""
        sql = f"select * from answers where ({_KEY}) = (?, ?, ?, ?, ?)"
        return rows.read_first(self._connection, QuestionAnswer, sql, self.run, *place)

    def tell(self, place: RequestPlace, answer: QuestionAnswer) -> AnswerStatus:
        """Record an answer, if its question was shown, is open, and its child has no birth yet."""
        with self._connection.transaction():
            if self.asked(place) is None:
                return AnswerStatus.UNASKED
            known = self.answer(place)
            if known is not None:
                same = (known.text, known.following) == (answer.text, answer.following)
                return AnswerStatus.KNOWN if same else AnswerStatus.TWICE
            birth = "select 1 from births where (run, generation, island, slot) = (?, ?, ?, ?)"
            if self._connection.row(birth, self.run, *place[:3]) is not None:
                return AnswerStatus.LATE
            self._connection.insert("answers", {**self._key(place), **rows.to_row(answer), "at": now()})
        return AnswerStatus.TAKEN

    def unused(self) -> int:
        """Number of answers whose child has no birth yet."""
        row = self._connection.row(
            "select count(*) from answers where run = ?1 and"
            " (generation, island, slot) not in (select generation, island, slot from births where run = ?1)",
            self.run,
        )
        return row[0] if row else 0

    def _key(self, place: RequestPlace) -> dict[str, Any]:
        return {"run": self.run, **place._asdict()}


class Replies:
    """The replies of models in one run. Threads may share it.

    A child may take several requests, and has a birth only after the last: a process that is killed in between finds
    the replies here and does not pay for them again.
    """

    def __init__(self, connection: Connection, run_id: str) -> None:
        self._connection = connection
        self._run = run_id

    def get(self, digest: str) -> str | None:
        """The reply to the request of this digest, as `keep` got it; None when there is none."""
        row = self._connection.row("select reply from replies where run = ? and digest = ?", self._run, digest)
        return None if row is None else str(row["reply"])

    def all(self) -> list[tuple[str, str]]:
        """Every digest with its reply."""
        found = self._connection.rows("select digest, reply from replies where run = ? order by at, digest", self._run)
        return [(row["digest"], row["reply"]) for row in found]

    def keep(self, digest: str, reply: str) -> None:
        """Record a reply; it is in the file when this returns. The first reply to a request is kept."""
        row = {"run": self._run, "digest": digest, "reply": reply}
        with self._connection.transaction():
            self._connection.insert("replies", {**row, "at": now()}, known="run, digest")
