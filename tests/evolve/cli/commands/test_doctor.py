from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.settings import LLMSettings
from kbevolve.evaluators.diagnostics import Diagnostic, readable
from kbevolve.evolve.cli.commands.doctor import language_model, more_languages
from kbevolve.evolve.proposers.codegen import languages


def test_every_model_is_named_and_no_password() -> None:
    settings = LLMSettings.model_validate(
        {"models": [{"name": "near", "api_base": "http://me:secretword@127.0.0.1:1/v1"}, {"name": "far"}]}
    )
    found = language_model(settings)
    assert found.found
    assert "near by openai at http://127.0.0.1:1/v1" in found.detail
    assert "far by openai at the provider's own endpoint" in found.detail
    assert "secretword" not in found.detail


def test_a_program_needs_no_name_and_an_endpoint_does() -> None:
    assert language_model(LLMSettings(provider="claude_code")).found
    missing = language_model(LLMSettings())
    assert not missing.found
    assert "--model NAME" in missing.remedy


def test_of_a_key_it_says_only_whether_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    found = language_model(LLMSettings(model="m", api_key_variable="MY_KEY"))
    assert "a key in MY_KEY" in found.detail
    assert "very-secret" not in found.detail


def test_it_says_what_a_kernel_can_still_read() -> None:
    for level in ("seccomp, limits", "limits", ""):
        open_to_all = readable(level)
        assert not open_to_all.found
        assert "every file" in open_to_all.detail
    alone, both = readable("landlock 7, seccomp, limits"), readable("bubblewrap, landlock 7, seccomp, limits")
    assert alone.found
    assert both.found
    assert "names and sizes" in alone.detail
    assert "names and sizes" not in both.detail


def test_a_line_has_name_mark_detail_and_what_to_do(kbevolve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Diagnostic(name="C++ compiler", found=True, detail="g++ 12", remedy="not shown"),
        Diagnostic(name="triton", found=False, remedy="pip install triton"),
    ]
    for name, parts in {
        "diagnose": found,
        "more_devices": [],
        "working_backends": {"cpp": True, "triton": False},
    }.items():
        monkeypatch.setattr(f"kbevolve.evolve.cli.commands.doctor.{name}", lambda *_, parts=parts: parts)
    lines = kbevolve("doctor").out.splitlines()
    assert lines[:2] == ["C++ compiler  ✓ g++ 12", "triton        – not found; pip install triton"]
    assert lines[-1] == "Kernels that work here: cpp; not: triton, tilelang, cute, thunderkittens, hip"


@pytest.mark.parametrize(
    ("device", "lines"),
    [
        ("", {}),
        ("NVIDIA H200, sm_90", {"tilelang": True, "cute": False, "thunderkittens": False}),
        ("AMD Instinct MI300X, gfx942", {"hip": True, "tilelang": True}),
    ],
)
def test_it_says_which_languages_have_their_packages(
    device: str, lines: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbevolve.evolve.cli.commands.doctor._first_gpu", lambda: device)
    monkeypatch.setattr(languages, "find_spec", lambda name: object() if name == "tilelang" else None)
    monkeypatch.setattr(languages, "KITTENS", Path("/nowhere/include/kittens.cuh"))
    assert {finding.name: finding.found for finding in more_languages()} == lines
