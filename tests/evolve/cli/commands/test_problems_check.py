"""`kbevolve problems check`, and the card in words for people and models."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Idea, Kernel, Operator, ProblemCard, Verdict
from kbevolve.configs.flaws import all_flaws
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.analysis import roofline
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evolve.cli.render.problem_card import card_fields
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.codegen.facts import card_lines
from kbevolve.evolve.state.attempts import Failure
from tests.evolve.doubles import brief_of

HONEST = """import torch


class Model(torch.nn.Module):
    def forward(self, A, B):
        return torch.relu(A @ B)


def get_inputs():
    return [torch.randn(64, 32), torch.randn(32, 48)]


def get_init_inputs():
    return []
"""
DEGENERATE = HONEST.replace("torch.relu(A @ B)", "torch.relu(A @ B - 1000)")

CARD = ProblemCard(
    problem="p", device="d", precision="fp32", input_bytes=134_217_728, output_bytes=67_108_864, flops=137_438_953_472,
    eager_ms=2.67, memory_ms=0.05, roofline_ms={"fp64": 1.1, "fp32": 1.1, "tf32": 0.36, "half": 0.2},
    floor_ms={"fp64": 0.8, "fp32": 0.8, "tf32": 0.3, "half": 0.15},
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KBEVOLVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELBENCH", raising=False)
    rates = Roofline(
        bytes_per_second=4e10, operations_per_second={"fp64": 1e11, "fp32": 2e11}, l2_bytes=0, headroom=2.0
    )
    monkeypatch.setattr(roofline, "measure", lambda device: rates)


def written(folder: Path, source: str, name: str = "problem.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return path


def test_an_honest_problem_is_accepted(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    outcome = kbevolve("problems", "check", written(tmp_path, HONEST), "--device", "cpu")
    assert outcome.code == 0, outcome.err
    fields = dict(line.split(None, 1) for line in outcome.out.splitlines())
    assert fields["verdict"] == "accepted"
    assert fields["reads"] == "14.3 kB"
    assert fields["computes"] == "197 kFLOP in products"
    assert "degenerate" not in outcome.out


def test_a_degenerate_problem_is_refused_in_clear_words(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    path = written(tmp_path, DEGENERATE, "level1/23_Wide.py")
    outcome = kbevolve("problems", "check", path, "--device", "cpu")
    assert outcome.code == 0
    assert "verdict     refused" in outcome.out
    assert "zeros" in outcome.out
    assert "--force" in outcome.out
    assert all_flaws()["1/23"][0].why in outcome.out


def test_scripts_get_the_whole_card(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    path = written(tmp_path, DEGENERATE, "level1/23_Wide.py")
    tree = json.loads(kbevolve("problems", "check", path, "--device", "cpu", "--precision", "bf16", "--json").out)
    assert tree["degenerate"] is True
    assert tree["precision"] == "bf16"
    assert "zeros" in tree["flags"]["degenerate"]
    assert tree["known"][0]["kind"] == "degenerate"
    assert tree["input_bytes"] == 7168


def test_the_second_look_is_at_the_card_on_disk(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    path = written(tmp_path, HONEST)
    words = ("problems", "check", path, "--device", "cpu", "--json")
    first = json.loads(kbevolve(*words).out)
    assert json.loads(kbevolve(*words).out) == first
    (card,) = (path for path in (tmp_path / "cache" / "card").rglob("*") if path.is_file())
    written_at = card.stat().st_mtime_ns
    assert json.loads(kbevolve(*words).out) == first
    assert card.stat().st_mtime_ns == written_at
    assert kbevolve(*words, "--fresh").code == 0
    assert card.stat().st_mtime_ns > written_at


def test_misuse_is_said(kbevolve: Callable[..., Any]) -> None:
    assert kbevolve("problems", "check", "softmax").code == 2
    assert kbevolve("problems", "check", "L1/softmax", "--precision", "fp8").code == 2
    assert kbevolve("problems", "check", "L1/softmax", "--help").code == 0


def test_what_bounds_it_is_read_off_the_two_times() -> None:
    assert CARD.bound_by == "arithmetic"
    assert replace(CARD, memory_ms=1.1).bound_by == "memory"
    assert replace(CARD, precision="bf16", memory_ms=0.2).bound_by == "memory"


def test_a_model_learns_what_helps_and_not_what_the_judge_looks_at() -> None:
    flags = {
        "degenerate": "zeros pass", "low-signal": "weak", "random": "dropout", "in-place": "forward changes input 0",
        "launch-bound": "eager takes 12 µs a call", "dead-code": "the answer does not depend on fc.weight",
    }  # fmt: skip
    text = "\n".join(card_lines(replace(CARD, flags=flags)))
    assert text == (
        "It must read 134 MB and write 67.1 MB (50.0 µs at the measured bandwidth), and computes 137 GFLOP in "
        "products.\n"
        "So arithmetic bounds it, at 1.10 ms if each byte moves once and nothing is padded; "
        "eager PyTorch takes 2.67 ms.\n"
        "Launch-bound: eager takes 12 µs a call.\n"
        "Dead-code: the answer does not depend on fc.weight.\n"
        "In-place: forward changes input 0."
    )


def test_every_prompt_about_a_problem_shows_its_card() -> None:
    parent = Kernel.from_source("#include <x>\nclass ModelNew: ...\n")
    found = Evaluation(kernel=parent.id, problem="p", device="d", precision="fp32", verdict=Verdict.WRONG, message="no")
    asked = parse_problem(HONEST, name="p", path=Path("p.py"))
    brief, bare = (brief_of(Operator.REWRITE, problem=asked, device="d", card=card) for card in (CARD, None))
    idea = Idea(title="t", mechanism="m", technique="tiling")
    texts = [
        prompts.ideas(brief, [], load_playbook()),
        prompts.implement(brief, idea),
        prompts.repair_task(brief, Failure(kernel=parent, evaluation=found)),
    ]
    for prompt in texts:
        assert "return []\n```\nIt must read 134 MB" in prompt
    assert "It must read" not in prompts.ideas(bare, [], load_playbook())


def test_doubts_are_named() -> None:
    fields = card_fields(replace(CARD, flags={"low-signal": "weak", "in-place": "forward changes input 0"}), ())
    assert str(fields["verdict"]) == "accepted, with doubts: low-signal"
    assert str(fields["in-place"]) == "forward changes input 0"
    assert fields["roofline"] == "fp32 1.10 ms, tf32 360 µs, half 200 µs"
    assert fields["eager"] == "2.67 ms, 41 % of the roofline"
