"""`kbevolve evaluate` and `kbevolve doctor`, as a user types them."""

import json
from pathlib import Path

import pytest

from kbevolve.configs.settings import Settings
from kbevolve.evaluators.diagnostics import Diagnostic, working_backends
from kbevolve.evolve.cli.main import main
from kbevolve.evolve.runs.settings import settings_and_devices

PROBLEM = '''"""y = 2 x."""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.rand(32, 32)]


def get_init_inputs():
    return []
'''


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    problem, kernel = tmp_path / "double.py", tmp_path / "kernel.py"
    problem.write_text(PROBLEM)
    kernel.write_text(PROBLEM.replace("class Model(", "class ModelNew(").replace("2 * x", "x + x"))
    return str(kernel), str(problem)


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return int(exit_.value.code or 0)


QUICK = ("--device", "cpu", "--set", "evaluation.rounds=3", "--set", "evaluation.calls_per_round=2")


@pytest.mark.slow
def test_json_is_one_object_last_on_standard_output(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    kernel, problem = files
    assert call("evaluate", kernel, "--problem", problem, "--json", *QUICK) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["verdict"] == "correct"
    assert found["precision_class"] in ("fp64", "fp32")
    assert found["speedup"] > 0
    assert {"build", "trials", "timing"} <= found["phases"].keys()


@pytest.mark.slow
def test_the_report_says_verdict_and_why_and_the_exit_code_is_zero(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    kernel, problem = files
    Path(kernel).write_text(Path(kernel).read_text().replace("x + x", "x + 3"))
    assert call("evaluate", kernel, "--problem", problem, *QUICK) == 0
    out = capsys.readouterr().out
    assert "wrong" in out
    assert "got" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py", "--problem", "L1/matmul"], "nowhere.py: No such file"),
        (["KERNEL", "--problem", "L1/matmull"], "L1/matmul"),
        (["KERNEL", "--problem", "L1/matmul", "--set", "evaluation.round=3"], "evaluation.rounds"),
        (["KERNEL", "--problem", "L1/matmul", "--precision", "fp8"], "fp8"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert call("evaluate", *[files[0] if word == "KERNEL" else word for word in arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.splitlines()[0].startswith("kbevolve: ")


def test_a_cpu_brings_its_preset() -> None:
    settings, devices = settings_and_devices(overrides={"device": "cpu"})
    assert devices.device.type == "cpu"
    assert settings == Settings.load(preset="cpu")


def test_a_named_preset_and_overrides_win_over_the_cpus() -> None:
    settings, _ = settings_and_devices(preset="smoke", overrides={"device": "cpu", "evaluation.trials": 7})
    assert settings.evaluation.trials == 7
    assert settings.evaluation.rounds == Settings.load(preset="smoke").evaluation.rounds


def test_doctor_finds_what_is_here_and_never_shows_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    assert call("doctor") == 0
    out = capsys.readouterr().out
    assert "torch" in out
    assert "a key in OPENAI_API_KEY" in out
    assert "sk-very-secret" not in out
    assert "Kernels that work here: torch" in out


@pytest.mark.slow
def test_doctor_speaks_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backends"]["torch"] is True
    assert "LLM" in [finding["name"] for finding in found["findings"]]


@pytest.mark.parametrize(
    ("missing", "backends"),
    [
        (set(), {"torch", "cpp", "triton", "cuda"}),
        ({"GPU"}, {"torch", "cpp"}),
        ({"C++ compiler"}, {"torch", "triton"}),
        ({"nvcc"}, {"torch", "cpp", "triton"}),
        ({"triton"}, {"torch", "cpp", "cuda"}),
    ],
)
def test_backends_follow_from_what_is_there(missing: set[str], backends: set[str]) -> None:
    names = ("torch", "GPU", "C++ compiler", "ninja", "nvcc", "triton")
    findings = [Diagnostic(name=name, found=name not in missing) for name in names]
    assert {name for name, works in working_backends(findings).items() if works} == backends
