"""One request to the `claude` or `copilot` program, whose command line openevolve 0.4.0 writes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from kbevolve.configs.errors import ProposerError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.connection import POLL_SECONDS, silence_libraries, until_cancelled
from kbevolve.evolve.llm.transports import Message, Reply, TransientError

#: US dollars that one call of the `claude` program may cost: openevolve's own default, which its configuration class
#: would pass on as the word "None".
CLAUDE_DOLLARS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTransport:
    """Calls of the `claude` or `copilot` program, which has its own login.

    Their command lines take neither a token limit nor a temperature. They run in an empty directory, not the user's.
    """

    settings: LLMSettings
    #: Set when the answer is no longer wanted.
    cancelled: Event = field(default_factory=Event, repr=False)

    def __call__(self, system: str, messages: Sequence[Message]) -> Reply:
        """Run the program once."""
        silence_libraries()
        from openevolve.config import LLMModelConfig
        from openevolve.llm import ClaudeCodeLLM, CopilotCLILLM

        make, program, model = (
            (ClaudeCodeLLM, "claude", "sonnet")
            if self.settings.provider == "claude_code"
            else (CopilotCLILLM, "copilot", "auto")
        )
        config = LLMModelConfig(
            name=self.settings.model or model,
            max_tokens=self.settings.max_tokens,
            timeout=self.settings.timeout,
            retries=0,
            retry_delay=0,
            max_budget_usd=CLAUDE_DOLLARS,
        )
        remedy = f"try `{program} -p hello` by hand, and `{program} login`"
        try:
            with tempfile.TemporaryDirectory(prefix="kbevolve-llm-") as empty:
                # The programs take one prompt, and openevolve would drop the model's own turns.
                turns = [{"role": "user", "content": _as_one_prompt(messages)}]
                asked = make(config)
                # openevolve's own call ends with the program only, which may take minutes and cost money.
                asked._run_cli = partial(_output_of, folder=empty, cancelled=self.cancelled)
                text = asyncio.run(
                    until_cancelled(asked.generate_with_context(system, turns, retries=0), self.cancelled)
                )
        except FileNotFoundError:
            raise ProposerError(f"the program `{program}` was not found; install it, then `{program} login`") from None
        except TimeoutError:
            raise TransientError(
                f"`{program}` gave no answer within {self.settings.timeout:g} s", remedy=remedy
            ) from None
        except (OSError, RuntimeError) as error:
            raise TransientError(f"`{program}` failed: {' '.join(str(error).split())[:200]}", remedy=remedy) from None
        return Reply(text=str(text), model=str(config.name))


def _output_of(command: Sequence[str], seconds: float, *, folder: str, cancelled: Event) -> str:
    """What a program prints; it is killed with all that it started when its time is over, or `cancelled` is set.

    Raises:
        TimeoutError: it was killed.
        RuntimeError: it failed, or printed nothing; with what it said.
    """
    deadline = time.monotonic() + seconds
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    ) as process:
        while True:
            try:
                printed, complaint = process.communicate(timeout=POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if cancelled.is_set() or time.monotonic() > deadline:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise TimeoutError from None
    if process.returncode or not printed.strip():
        raise RuntimeError(f"it ended with code {process.returncode}: {complaint.strip() or printed.strip()}")
    return printed.strip()


def _as_one_prompt(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return messages[0].content
    said = {"user": "I asked:", "assistant": "You answered:"}
    earlier = "\n\n".join(f"{said[message.role]}\n\n{message.content}" for message in messages[:-1])
    return f"{earlier}\n\nNow:\n\n{messages[-1].content}"
