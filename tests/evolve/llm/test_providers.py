"""Which model the settings ask for: an endpoint with or without a key, a program on this machine, none."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.llm.client import Message, RetryingModel, build_language_model
from tests.evolve.llm.test_client import HELLO, KEY


def test_nothing_configured_is_no_model() -> None:
    assert build_language_model(LLMSettings()) is None


def test_a_local_endpoint_needs_no_key(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    endpoint.say("x")
    built = build_language_model(LLMSettings(model="m", api_base=endpoint.base))
    assert built is not None
    assert built.complete("", HELLO).text == "x"


def test_the_key_is_read_from_the_named_variable(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    endpoint.say("x")
    built = build_language_model(LLMSettings(model="m", api_base=endpoint.base, api_key_variable="MY_KEY"))
    assert built is not None
    built.complete("", HELLO)
    assert endpoint.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_missing_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ProposerError, match=r"OPENAI_API_KEY is empty; export"):
        build_language_model(LLMSettings(model="m"))
    with pytest.raises(SettingsError, match="--model") as nameless:
        build_language_model(LLMSettings(api_base="http://me:secretword@127.0.0.1:1/v1"))
    assert "secretword" not in str(nameless.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-“curly”")
    with pytest.raises(ProposerError, match="copy it again") as caught:
        build_language_model(LLMSettings(model="m"))
    assert "curly" not in str(caught.value)


def test_a_program_gets_the_whole_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "[%s]" "$word"; done; ls\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    built = build_language_model(LLMSettings(provider="claude_code"))
    assert built is not None
    reply = built.complete(
        "be kind", [*HELLO, Message(role="assistant", content="hi"), Message(role="user", content="and now?")]
    )
    assert reply.model == "sonnet"
    assert "[--max-budget-usd][1.0]" in reply.text
    assert reply.text.endswith("[I asked:\n\nhello\n\nYou answered:\n\nhi\n\nNow:\n\nand now?]")


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, note = tmp_path / "claude", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {note}\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    built = build_language_model(LLMSettings(provider="claude_code", timeout=2, retries=0))
    assert built is not None
    with pytest.raises(ProposerError, match=r"`claude` gave no answer within 2 s, tried once"):
        built.complete("", HELLO)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_a_program_ends_with_its_children_when_the_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, note = tmp_path / "claude", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {note}.new && mv {note}.new {note}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    built = build_language_model(LLMSettings(provider="claude_code", timeout=600, retries=0))
    assert isinstance(built, RetryingModel)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(built.complete, "", HELLO)
        while not note.exists() and not asked.done():
            time.sleep(0.01)
        built.close()
        with pytest.raises(ProposerError, match="was cancelled"):
            asked.result(20)
    child, deadline = Path("/proc", note.read_text().strip(), "stat"), time.monotonic() + 10
    while child.exists() and child.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not child.exists() or child.read_text().split()[2] == "Z", "it lives on"


def test_what_a_program_says_when_it_fails_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "claude"
    program.write_text("#!/bin/sh\necho the budget is spent\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    built = build_language_model(LLMSettings(provider="claude_code", retries=0))
    assert built is not None
    with pytest.raises(ProposerError, match="`claude` failed: it ended with code 3: the budget is spent"):
        built.complete("", HELLO)


def test_a_missing_program_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    built = build_language_model(LLMSettings(provider="copilot_cli"))
    assert built is not None
    with pytest.raises(ProposerError, match="`copilot` was not found"):
        built.complete("", HELLO)


def test_the_removed_provider_of_older_runs_loads_and_is_refused() -> None:
    settings = LLMSettings.model_validate({"provider": "manual", "manual_dir": "kbevolve-out/manual"})
    with pytest.raises(SettingsError, match="'manual' no longer exists; answer prompts by hand with `kbevolve ask`"):
        build_language_model(settings)
