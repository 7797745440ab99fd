"""OpenEvolve's process: start it, answer its questions, end it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from kbevolve.configs.errors import ProposerError
from kbevolve.evolve.llm.client import Message

#: The program that runs in it.
CONTROLLER = "kbevolve.evolve.proposers.openevolve.controller"
#: Environment variables of its process. It gets no keys: our process asks the models.
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
#: Seconds in which it must end after its group was killed.
KILL_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuestion:
    """It needs a model's answer."""

    model: str
    system: str
    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """The whole request, as archives store it."""
        return "\n\n".join([f"[system]\n{self.system}", *(f"[{one.role}]\n{one.content}" for one in self.messages)])


class OpenEvolveProcess:
    """A running OpenEvolve. It asks one question at a time and waits for the answer.

    Args:
        program: its first program; its first question is that program's score.
        system: the system message of all its prompts: the model's role and the task.
        models: name -> weight in its ensemble.
        seed: of all its choices.

    Raises:
        ProposerError: its process cannot be started.
    """

    def __init__(self, *, program: str, system: str, models: Mapping[str, float], seed: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kbevolve-openevolve-"))
        self._pipe, theirs = Pipe()
        try:
            with theirs, (self._folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", CONTROLLER, str(theirs.fileno())],
                    cwd=self._folder,
                    env=_environment(),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # no Ctrl-C from the terminal, and its worker ends with it
                )
        except OSError as error:
            self._pipe.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ProposerError(f"OpenEvolve cannot be started: {error.strerror}; see `kbevolve doctor`") from None
        self._send({"program": program, "system": system, "models": dict(models), "seed": seed})

    def next(self) -> ModelQuestion | str:
        """Its next question, the source of a program when it needs a score; waits for it.

        Raises:
            ProposerError: its process has ended.
        """
        try:
            question = json.loads(self._pipe.recv_bytes())
        except (OSError, EOFError):
            log: list[str] = []
            with contextlib.suppress(OSError):
                log = (self._folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = log[-1] if log else "it was killed"
            raise ProposerError(f"OpenEvolve's process has ended: {why}; `kbevolve resume` starts another") from None
        if "program" in question:
            return str(question["program"])
        messages = tuple(Message(**one) for one in question["messages"])
        return ModelQuestion(model=question["model"], system=question["system"], messages=messages)

    def answer(self, text: str) -> None:
        """Send the model's answer."""
        self._send({"text": text})

    def score(self, metrics: Mapping[str, float], artifacts: Mapping[str, str]) -> None:
        """Send the judge's result: numbers, of which `combined_score` decides, and texts for its next prompts."""
        self._send({"metrics": dict(metrics), "artifacts": dict(artifacts)})

    def close(self) -> None:
        """End it and all its processes; safe to call twice and from another thread, which then waits no longer."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=KILL_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, answer: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended; `next` says why
            self._pipe.send_bytes(json.dumps(answer).encode("ascii"))


def _environment() -> dict[str, str]:
    """The environment of its process; hashes of strings are the same in every process."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    return kept | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
