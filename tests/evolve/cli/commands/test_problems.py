"""`kbevolve problems`, as a user types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from kbevolve.configs.catalog import builtin_names, find_problem

TINY = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture(autouse=True)
def no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELBENCH", raising=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "KernelBench" / "level4"
    folder.mkdir(parents=True)
    (folder / "2_Wide_Softmax.py").write_text(TINY)
    (folder / "10_Broken.py").write_text("class Model: ...\n")
    return tmp_path


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}


def test_a_pipe_gets_one_line_a_problem(kbevolve) -> None:  # type: ignore[no-untyped-def]
    outcome = kbevolve("problems", "ls")
    assert outcome.code == 0
    assert list(rows(outcome.out)) == builtin_names()
    assert rows(outcome.out)["L1/cumsum"] == ["yes", "-", "Running", "sum", "along", "the", "rows"]
    assert "cpp" in rows(outcome.out)["L1/matmul"][1].split(",")


def test_one_level(kbevolve) -> None:  # type: ignore[no-untyped-def]
    listed = rows(kbevolve("problems", "ls", "--level", 3).out)
    assert list(listed) == ["L3/mlp", "L3/resnet_block", "L3/transformer_block"]
    outcome = kbevolve("problems", "ls", "--level", 4)
    assert outcome.code == 2
    assert "the levels are 1, 2, 3" in outcome.err


def test_a_checkout_is_listed_and_a_bad_file_hides_no_other(kbevolve, checkout: Path) -> None:  # type: ignore[no-untyped-def]
    outcome = kbevolve("problems", "ls", "--kernelbench", checkout, "--level", 4)
    assert outcome.code == 0
    listed = rows(outcome.out)
    assert listed["kernelbench:4/2"] == ["-", "-", "Wide", "Softmax"]
    assert listed["kernelbench:4/10"][2] == "malformed:"


def test_a_problem_is_shown_as_it_is_or_as_a_cpu_runs_it(kbevolve) -> None:  # type: ignore[no-untyped-def]
    problem = find_problem("L1/softmax")
    assert kbevolve("problems", "show", "L1/softmax").out == problem.source
    shown = kbevolve("problems", "show", "L1/softmax", "--device", "cpu").out
    assert shown == problem.source_for("cpu")
    assert "\nCOLUMNS = 8192\n" in shown


def test_files_and_checkouts_are_shown_too(kbevolve, checkout: Path) -> None:  # type: ignore[no-untyped-def]
    path = checkout / "KernelBench" / "level4" / "2_Wide_Softmax.py"
    assert kbevolve("problems", "show", path).out == TINY
    assert kbevolve("problems", "show", "kernelbench:4/2", "--kernelbench", checkout).out == TINY


def test_an_unknown_problem_is_misuse_and_names_the_nearest(kbevolve) -> None:  # type: ignore[no-untyped-def]
    outcome = kbevolve("problems", "show", "softmax")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Nearest: L1/softmax" in outcome.err


def test_on_a_terminal_the_source_is_coloured(kbevolve, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = kbevolve("problems", "show", "L1/gelu").out
    assert "\x1b[" in out
    assert "get_init_inputs" in out


def test_every_command_has_help_with_an_example(kbevolve) -> None:  # type: ignore[no-untyped-def]
    for words in (("problems",), ("problems", "ls"), ("problems", "show")):
        outcome = kbevolve(*words, "--help")
        assert outcome.code == 0
        assert "Example: kbevolve problems" in outcome.out


def test_neither_listing_nor_showing_imports_torch() -> None:
    program = (
        "import sys; from kbevolve.evolve.cli.main import main\n"
        "for words in (['problems', 'ls'], ['problems', 'show', 'L1/matmul']):\n"
        "    try: main(words)\n"
        "    except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'openevolve', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_kernelbench_is_fetched_once_and_then_found_without_an_option(
    kbevolve, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KBEVOLVE_CACHE", str(tmp_path / "cache"))
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "KernelBench"), ("commit", "-q", "-m", "problems")):
        subprocess.run([*git, *words], cwd=checkout, check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout, text=True).strip()
    assert kbevolve("problems", "show", "kernelbench:4/2").code == 2
    for ending in (".", ", which was there; delete it to fetch another commit."):
        outcome = kbevolve("problems", "fetch", "kernelbench", "--from", f"file://{checkout}", "--commit", commit)
        assert outcome.code == 0, outcome.err
        assert outcome.out.splitlines()[0] == f"2 problems in {tmp_path / 'cache' / 'kernelbench'}{ending}"
    assert kbevolve("problems", "show", "kernelbench:wide_softmax").out == TINY


def test_the_first_prompt_on_a_gpu_that_is_not_here(kbevolve) -> None:  # type: ignore[no-untyped-def]
    shown = kbevolve("problems", "prompt", "L1/softmax", "--gpu", "l40s", "--ideas", 2).out
    system, user = shown.split("----- user -----")
    assert "NVIDIA L40S, 142 SMs, 48 GB, sm_89\nA block may have 99 KiB" in system
    assert "By the data sheet: 864 GB/s" in system
    assert "ROWS = 8192" in user, "the sizes of a GPU"
    assert "Propose up to 2 ideas" in user
    assert "in CUDA C++ or Triton" in user
    amd = kbevolve("problems", "prompt", "L1/softmax", "--gpu", "MI300X", "--precision", "bf16").out
    assert "304 CUs, 192 GB, gfx942" in amd
    assert "in HIP C++ or Triton" in amd
    assert "CUDA C++" not in amd
    outcome = kbevolve("problems", "prompt", "L1/softmax", "--gpu", "H1000")
    assert (outcome.code, "Nearest: H100" in outcome.err) == (2, True)
