"""`kbevolve plot`, as a user types it."""

import json
from pathlib import Path
from typing import Any


def test_the_latest_run_is_drawn(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    file = tmp_path / "best.svg"
    outcome = kbevolve("plot", "-o", file, "--archive", small_archive.path)
    assert outcome.code == 0
    assert outcome.out == f"Wrote {file}: {small_archive.run.id}.\n"
    assert small_archive.run.id in file.read_text()


def test_a_run_is_drawn_over_its_tokens(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    words = ("plot", "-o", tmp_path / "best.svg", "--archive", small_archive.path)
    found = json.loads(kbevolve(*words, "--by", "tokens", "--json").out)
    assert found["by"] == "tokens"
    assert found["runs"][0]["kernels"][-1]["count"] > 1000
    assert "tokens sent and received" in (tmp_path / "best.svg").read_text()
    assert "draw --by tokens instead" in kbevolve(*words, "--by", "dollars").err


def test_all_runs_of_a_problem_on_one_device_are_drawn(
    kbevolve: Any, small_archive: Any, make_archive: Any, tmp_path: Path
) -> None:
    make_archive(run_id="other-device", device="cuda/H200", seed=2, generations=2)
    make_archive(run_id="again", seed=3, generations=2)
    file = tmp_path / "all.svg"
    outcome = kbevolve("plot", "--problem", "L1/matmul", "-o", file, "--archive", small_archive.path)
    assert "2 runs of L1/matmul" in outcome.out
    text = file.read_text()
    assert small_archive.run.id in text
    assert "again" in text
    assert "other-device" not in text


def test_what_does_not_compare_is_refused(kbevolve: Any, small_archive: Any, make_archive: Any, tmp_path: Path) -> None:
    make_archive(run_id="other-device", device="cuda/H200", seed=2, generations=1)
    words = ("plot", "-o", tmp_path / "x.png", "--archive", small_archive.path)
    both = kbevolve(*words, "--run", "other", "--run", "matmul")
    assert both.code == 2
    assert "different devices" in both.err
    assert kbevolve(*words, "--run", "other", "--problem", "L1/matmul").code == 2
    unknown = kbevolve(*words, "--problem", "L1/matmull")
    assert unknown.code == 1
    assert "Nearest: L1/matmul." in unknown.err
    assert kbevolve("plot", "-o", tmp_path / "x.gif", "--archive", small_archive.path).code == 2
    assert list(tmp_path.glob("x.*")) == []
