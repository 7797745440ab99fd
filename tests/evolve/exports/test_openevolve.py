"""The task folder runs under OpenEvolve: its own program, with a model on the loopback and kbevolve's judge."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbevolve.archive.records import Kernel
from kbevolve.evolve.exports.openevolve import openevolve
from tests.evolve.exports.kernels import KERNEL, measured

#: Changes of the kernel that a model might propose: one that is as right, one that is wrong.
RIGHT = ("* scale + 1), x", "* scale + 1.0), x")
WRONG = ("torch.relu((x", "torch.abs((x")


def edit(old: str, new: str) -> str:
    line = next(line for line in KERNEL.splitlines() if old in line)
    return f"<<<<<<< SEARCH\n{line}\n=======\n{line.replace(old, new)}\n>>>>>>> REPLACE"


def test_the_folder_has_the_kernel_the_judge_and_the_problem() -> None:
    found = measured()
    files = openevolve(found)
    assert set(files) == {"initial_program.py", "evaluator.py", "config.yaml", "problem.py"}
    assert Kernel.from_source(files["initial_program.py"]).id == found.kernel.id
    lines = files["initial_program.py"].splitlines()
    assert lines[0].startswith("# Exported by kbevolve")
    assert lines.index("# EVOLVE-BLOCK-START") < lines.index("class ModelNew(nn.Module):") < len(lines) - 1
    assert lines[-1] == "# EVOLVE-BLOCK-END"
    assert "'--device', 'cpu', '--precision', 'fp32'" in files["evaluator.py"]
    config = yaml.safe_load(files["config.yaml"])
    assert "ROWS = 6" in config["prompt"]["system_message"]
    assert files["problem.py"] == found.problem.source


@pytest.mark.slow
def test_openevolve_runs_two_iterations(endpoint: Any, tmp_path: Path) -> None:
    for name, text in openevolve(measured()).items():
        (tmp_path / name).write_text(text)
    config = tmp_path / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["llm"]["api_base"], settings["checkpoint_interval"] = endpoint.base, 1
    config.write_text(yaml.safe_dump(settings))
    endpoint.say(edit(*RIGHT))
    endpoint.say(edit(*WRONG))
    program = "from openevolve.cli import main; raise SystemExit(main())"
    words = ["initial_program.py", "evaluator.py", "--config", config, "--iterations", "2", "--output", "out"]
    environment = {**os.environ, "OPENAI_API_KEY": "none", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(endpoint.requests) == 2
    assert "class ModelNew" in endpoint.requests[0].last
    programs = [json.loads(file.read_text()) for file in (tmp_path / "out").rglob("programs/*.json")]
    by_code = {one["code"]: one["metrics"] for one in programs}
    first = by_code[(tmp_path / "initial_program.py").read_text()]
    assert first["correct"] == 1.0
    assert first["combined_score"] > 0
    (right,) = (metrics for code, metrics in by_code.items() if RIGHT[1] in code)
    assert right["combined_score"] > 0
    (wrong,) = (metrics for code, metrics in by_code.items() if WRONG[1] in code)
    assert wrong == {"combined_score": 0.0, "correct": 0.0}
