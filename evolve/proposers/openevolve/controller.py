"""The program in OpenEvolve's process: its controller, whose model and evaluator are questions to our process.

`process` starts it with the number of an open socket and sends the task; questions and answers are JSON. Only one
process asks at a time: the controller about the first program, then its one worker, which inherits the socket.
"""

import asyncio
import json
import logging
import os
import random
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

#: Files in the working directory: the first program, and the module that OpenEvolve loads as its evaluator.
PROGRAM, EVALUATION = "program.py", "evaluation.py"
#: Seconds, iterations and characters that mean no limit: our process sets the limits.
UNLIMITED = 10**8


@cache
def _pipe(descriptor: int) -> "Connection[Any, Any]":
    """One for each process: a pipe that is forgotten is closed."""
    return Connection(descriptor)


@dataclass(frozen=True, slots=True)
class QuestionSocket:
    """The socket to our process."""

    descriptor: int

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """A question and its answer. When our process is gone, this one and its worker end."""
        try:
            _pipe(self.descriptor).send_bytes(json.dumps(question).encode("ascii"))
            answer: dict[str, Any] = json.loads(_pipe(self.descriptor).recv_bytes())
        except (OSError, EOFError):
            _end()
        return answer

    def client(self, model: Any) -> "SocketModel":
        """The model of an entry in OpenEvolve's settings."""
        return SocketModel(self, model.name)

    def evaluate(self, path: str) -> Any:
        """Have a program judged: the interface of OpenEvolve's evaluation files."""
        from openevolve.evaluation_result import EvaluationResult

        found = self.ask({"program": Path(path).read_text(encoding="utf-8")})
        return EvaluationResult(metrics=found["metrics"], artifacts=found["artifacts"])


class SocketModel:
    """A model of OpenEvolve's ensemble."""

    def __init__(self, questions: QuestionSocket, model: str) -> None:
        self.model = model
        self.last_usage: dict[str, Any] | None = None
        self._questions = questions

    async def generate_with_context(self, system_message: str, messages: list[dict[str, str]], **_: Any) -> str:
        """The answer to a conversation; our process sets temperature and the like."""
        found = self._questions.ask({"model": self.model, "system": system_message, "messages": messages})
        return str(found["text"])


def main() -> None:
    """Run OpenEvolve until our process ends it."""
    questions = QuestionSocket(int(sys.argv[1]))
    task = json.loads(_pipe(questions.descriptor).recv_bytes())
    _fix_randomness(task["seed"])
    Path(PROGRAM).write_text(task["program"], encoding="utf-8")
    Path(EVALUATION).write_text(
        f"from {__spec__.name} import QuestionSocket\n\nevaluate = QuestionSocket({questions.descriptor}).evaluate\n",
        encoding="utf-8",
    )
    from openevolve.controller import OpenEvolve

    controller = OpenEvolve(PROGRAM, EVALUATION, _config(task, questions), output_dir="output")
    logging.getLogger().setLevel(logging.WARNING)
    asyncio.run(controller.run())
    _end()


def _config(task: Mapping[str, Any], questions: QuestionSocket) -> Any:
    """Its defaults, except for model, judge, task, seed and limits. One worker makes the order reproducible."""
    from openevolve.config import Config, DatabaseConfig, EvaluatorConfig, LLMConfig, LLMModelConfig, PromptConfig

    models = [
        LLMModelConfig(name=name, weight=weight, init_client=questions.client)
        for name, weight in task["models"].items()
    ]
    return Config(
        max_iterations=UNLIMITED,
        checkpoint_interval=UNLIMITED,
        max_code_length=UNLIMITED,
        log_level="WARNING",
        random_seed=task["seed"],
        language="python",
        llm=LLMConfig(models=models),
        prompt=PromptConfig(system_message=task["system"]),
        database=DatabaseConfig(random_seed=task["seed"], log_prompts=False),
        evaluator=EvaluatorConfig(
            timeout=UNLIMITED, max_retries=0, cascade_evaluation=False, parallel_evaluations=1, enable_artifacts=True
        ),
    )


def _fix_randomness(seed: int) -> None:
    """Let every process of one seed make the same choices.

    Programs get random names, and its database draws from sets of names. Its worker draws parts of the prompts from
    Python's own generator, which each process seeds differently.
    """
    names = random.Random(f"{seed}/controller")
    uuid.uuid4 = lambda: uuid.UUID(int=names.getrandbits(128), version=4)

    def in_worker() -> None:
        names.seed(f"{seed}/worker")
        random.seed(f"{seed}/prompts")

    os.register_at_fork(after_in_child=in_worker)


def _end() -> NoReturn:
    """End the controller and its worker at once, from either of them."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("unreachable: this process was in the group")


if __name__ == "__main__":
    main()
