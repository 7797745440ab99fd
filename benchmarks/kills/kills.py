"""Runs that are killed at random moments and entered again until they end, beside an undisturbed one."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.kills.session import ARRIVED, HANDED_ON, begin, named_in, settings_for, start
from kbevolve.archive.store import Archive

#: Seconds after which a session hangs.
HANGS = 60.0
#: A session is killed after less than this share of the time that the undisturbed run took, so that a run is killed
#: several times on its way.
SHARE = 0.5
#: How long the wait for a session's end sleeps between two looks.
_LOOK = 0.002


#: How the endpoint knows the sessions of a run.
_KEY = "session-{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A SIGKILL in the middle of a session."""

    #: Seconds since 1970.
    at: float
    #: Request -> how many answers to it the archive held then.
    kept: Counter[str]
    #: Answers that had reached the process by then: request -> when the last one did, in seconds since 1970.
    arrived: Mapping[str, float]
    #: Requests whose answers the search had got.
    handed_on: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over."""

    content: dict[str, Any]
    kills: tuple[Kill, ...]
    #: Of each session, how often each request was sent; and answers that were sent in all.
    asked: tuple[Counter[str], ...]
    answers: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class Found:
    """What came of all runs."""

    kills: int = 0
    runs: int = 0
    #: Runs whose archive is the undisturbed one's, and the parts in which others differ.
    same: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    #: Answers that the undisturbed run had, and all killed runs together.
    undisturbed_answers: int = 0
    answers: int = 0
    #: Requests sent again though the archive had held the answer when the process was killed.
    requested_twice: int = 0
    #: Requests sent again because they were in flight; those of them whose answer had reached the process, but not yet
    #: the archive; and how old the oldest of these was, in milliseconds.
    in_flight: int = 0
    arrived: int = 0
    oldest_ms: float = 0.0
    #: Answers that the search had got, and the archive had not.
    lost: int = 0

    @property
    def ok(self) -> bool:
        """Whether every run ended as the undisturbed one, lost no answer and paid for none twice.

        Between the arrival of an answer and its place in the archive are milliseconds, in which a kill is bad luck: 40
        of them on a slow machine, met by 3 kills of 10. The search gets an answer only afterwards.
        """
        return self.same == self.runs > 0 and not self.requested_twice and not self.lost

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "differing": dict(self.differing), "oldest_ms": round(self.oldest_ms, 1), "ok": self.ok}


def experiment(kills: int, seed: int, *, verbose: bool = False) -> Found:
    """Kill sessions, so many in all, and look at what the runs left."""
    _warm()
    rng, found = Random(seed), Found()
    with tempfile.TemporaryDirectory(prefix="kbevolve-kills-") as name:
        folder = Path(name)
        whole = _run(folder / "whole", seed, delays=None)
        found.undisturbed_answers = whole.answers
        if verbose:
            births = Counter(birth.state.value for birth in whole.content["births"])
            states = ", ".join(f"{count} {state}" for state, count in births.items())
            print(f"undisturbed: {whole.seconds:.2f} s, {whole.answers} answers; births: {states}", flush=True)
        while found.kills < kills:
            place, longest = folder / str(found.runs), SHARE * whole.seconds
            ended = _run(place, seed, delays=rng, longest=longest, most=kills - found.kills)
            _compare(found, whole, ended)
            if verbose:
                print(f"run {found.runs}: {len(ended.kills)} kills, {found.same} of {found.runs} the same", flush=True)
    return found


def _run(place: Path, seed: int, *, delays: Random | None, longest: float = 0.0, most: int = 0) -> Ended:
    """A whole run; with `delays` each session is killed after at most `longest` seconds, `most` of them in all."""
    place.mkdir()
    archive, answers, log = place / "run.db", place / "answers", place / "log"
    answers.touch()
    kills: list[Kill] = []
    with _endpoint(log) as base:
        begin(archive, settings_for(base, seed))
        began = time.monotonic()
        while True:
            seconds = delays.random() * longest if delays is not None and len(kills) < most else None
            if _wait_for(start(archive, answers, _KEY.format(len(kills))), seconds):
                break
            at, noted = time.time(), _lines(answers)
            arrived = {line["request"]: line["at"] for line in noted if line["what"] == ARRIVED}
            handed_on = frozenset(line["request"] for line in noted if line["what"] == HANDED_ON)
            kills.append(Kill(at=at, kept=_kept(archive), arrived=arrived, handed_on=handed_on))
        seconds = time.monotonic() - began
    noted = _lines(log)
    return Ended(
        content=_content(archive),
        kills=tuple(kills),
        asked=tuple(
            Counter(one["request"] for one in noted if one["what"] == "asked" and one["key"] == _KEY.format(session))
            for session in range(len(kills) + 1)
        ),
        answers=sum(one["what"] == "answered" for one in noted),
        seconds=seconds,
    )


def _wait_for(process: int, seconds: float | None) -> bool:
    """Wait for a session; whether it ended by itself. With `seconds` it is killed after so many.

    Raises:
        RuntimeError: it failed, or hangs.
    """
    deadline = time.monotonic() + (HANGS if seconds is None else seconds)
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            break
        if time.monotonic() >= deadline:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            break
        time.sleep(_LOOK)
    if os.WIFSIGNALED(status) and seconds is not None:
        return False
    if status:
        raise RuntimeError(f"a session ended with status {status}; what it printed says why")
    return True


def _compare(found: Found, whole: Ended, ended: Ended) -> None:
    (due,) = whole.asked
    found.runs += 1
    found.kills += len(ended.kills)
    differing = [part for part, content in whole.content.items() if content != ended.content[part]]
    found.same += not differing
    found.differing.update(differing)
    found.answers += ended.answers
    requested_twice = 0
    arrived: dict[str, float] = {}
    for session, kill in enumerate(ended.kills, start=1):
        found.lost += len(kill.handed_on - kill.kept.keys())
        # What the archive held of all that the run asks need not be asked any more.
        requested_twice += sum(
            max(0, count + kill.kept[name] - due[name]) for name, count in ended.asked[session].items()
        )
        later = sum(ended.asked[session:], Counter[str]())
        for name in kill.arrived.keys() & later.keys():
            if not kill.kept[name]:
                arrived.setdefault(name, 1e3 * (kill.at - kill.arrived[name]))
    found.requested_twice += requested_twice
    found.in_flight += sum(ended.asked, Counter[str]()).total() - due.total() - requested_twice
    found.arrived += len(arrived)
    found.oldest_ms = max([found.oldest_ms, *arrived.values()])


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _kept(archive: Path) -> Counter[str]:
    """Request -> how many answers to it an archive holds. Every answer begins with the name of its request."""
    with sqlite3.connect(archive) as connection:
        replies = [json.loads(reply)["text"] for (reply,) in connection.execute("select reply from replies")]
    connection.close()
    return Counter(map(named_in, replies))


def _content(path: Path) -> dict[str, Any]:
    """Everything in an archive but moments, seconds and the number of sessions."""
    with Archive(path, create=False) as archive:
        run = archive.runs.get()
        births = [replace(birth, run="", seconds=0.0) for birth in archive.runs.births(run.id)]
        kernels = archive.runs.kernels(run.id)
        content: dict[str, Any] = {
            "births": births,
            "kernels": kernels,
            "ideas": archive.runs.ideas(run.id),
            "evaluations": {name: archive.kernels.evaluations(name) for name in sorted(kernels)},
            "placements": [replace(one, run="") for one in archive.runs.placements(run.id)],
            "confirmations": [replace(one, run="") for one in archive.runs.confirmations(run.id)],
            "stopped": archive.runs.summary(run).stopped,
        }
    with sqlite3.connect(path) as connection:
        content["generation_ends"] = connection.execute(
            "select generation from generation_ends order by generation"
        ).fetchall()
        content["replies"] = connection.execute("select digest, reply from replies order by digest").fetchall()
    connection.close()
    return content


@contextmanager
def _endpoint(log: Path) -> Iterator[str]:
    """A fresh scripted model; its base address."""
    command = [sys.executable, "-m", "benchmarks.kills.endpoint", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        finally:
            server.kill()


def _warm() -> None:
    """Import what a session imports on its way: sessions are forked, and each would import it again."""
    import openai  # noqa: F401
    import openevolve.llm.openai  # noqa: F401
    import sqlite_utils  # noqa: F401

    import kbevolve.evaluators.judging.judge
    import kbevolve.evolve.proposers.codegen.proposer  # noqa: F401

    os.environ.setdefault("no_proxy", "127.0.0.1")
