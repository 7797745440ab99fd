"""`kbevolve bench`, as a user types it, with a judge that knows all speeds: results, resuming, failures, files."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Kernel, ProblemCard
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.recipe import Outcome, RecipeVerdict
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import recipe_bench
from tests.evolve.doubles import PROBLEM_TEXT, KnownJudge, kernel, replace_starts

#: Speed of the kernels: 1.3, 1.6 and 2.2 times eager's, at TILE = 32.
SLOW, FAST, FASTER = kernel(TILE=32), kernel(TILE=32, UNROLL=2), kernel(TILE=32, UNROLL=8)
WRONG = kernel(WRONG=1)


class BenchJudge(KnownJudge):
    """Knows flags by the text of a problem, and breaks over the problems of `breaking`."""

    def __init__(self, flagged: Mapping[str, Mapping[str, str]] | None = None, breaking: str = "") -> None:
        super().__init__(precision_class="fp32")
        self.flagged, self.breaking, self.opened = flagged or {}, breaking, 0
        self.error: BaseException = EvaluatorError("the reference does not run")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.opened += 1
        return super().__call__(*arguments, **options)

    def card(self, problem: Problem) -> ProblemCard:
        if self.breaking and self.breaking in problem.source:
            raise self.error
        flags = next((flags for word, flags in self.flagged.items() if word in problem.source), {})
        return replace(super().card(problem), flags=dict(flags), roofline_ms={"fp32": 2.0})

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        return replace(super().evaluate(problem, kernel), problem=problem.id)

    def baselines(self, problem: Problem) -> tuple[Baseline, ...]:
        return (*super().baselines(problem), Baseline(name="default-flags", speedup=4.0))


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two levels with three problems, which is the working directory's ``suite``."""
    for number, file in enumerate(("level1/1_First.py", "level1/2_Second.py", "level2/5_Third.py")):
        path = tmp_path / "suite" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{PROBLEM_TEXT}\n# problem {number}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bench(kbevolve: Any, suite: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    replace_starts(monkeypatch, *(StartingKernel(kernel=one, note="start") for one in (SLOW, FAST)))
    short = ("--generations", 0, "--set", "evaluation.confirm_rounds=2", "--set", "search.islands=1")

    def call(*words: object, judge: KnownJudge | None = None) -> Any:
        (judge or BenchJudge()).replace_judge(monkeypatch)
        return kbevolve("bench", "--suite", "suite", "--device", "cpu", *short, *words)

    return call


def kernels(folder: Path, **files: Kernel) -> Path:
    folder.mkdir()
    for name, one in files.items():
        (folder / f"level_{name}_kernel.py").write_text(one.source)
    return folder


def last(outcome: Any) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_a_suite_is_searched_and_scored(bench: Any, suite: Path) -> None:
    judge = BenchJudge()
    found = last(bench("--json", "--p", "1.5", judge=judge))
    assert judge.opened == 1, "the judges serve one problem after the other"
    assert (found["left"], list(found["levels"])) == (0, ["1", "2"])
    level = found["levels"]["1"]
    assert (level["n"], level["correct"], level["fast_0"], level["fast_1"], level["fast_2"]) == (2, 2, 1.0, 1.0, 0.0)
    assert level["fast_1.5"] == 1.0
    assert level["geomean_eager"] == pytest.approx(1.6)
    assert level["geomean_best"] == pytest.approx(0.8), "torch.compile is twice as fast as eager here"
    assert level["geomean_default"] == pytest.approx(1.6), "on a CPU no default flag lowers the precision"
    assert found["all"]["floor_share"] == pytest.approx(2.0 / (10 / 1.6))
    assert found["problems"][2]["problem"] == "suite/level2/5_Third.py"
    assert found["problems"][2]["kernel"] == FAST.id
    written = (suite / "bench" / "kernels" / "level_2_problem_5_sample_0_kernel.py").read_text()
    assert written == FAST.source
    rows = list(csv.DictReader((suite / "bench" / "problems.csv").read_text().splitlines()))
    assert [row["title"] for row in rows] == ["First", "Second", "Third"]
    assert float(rows[0]["speedup"]) == pytest.approx(1.6)
    assert "| all | 3 | 3 | 100 % | 100 % | 100 % | 0 % |" in (suite / "bench" / "scores.md").read_text()
    assert {"fast_p.png", "speedups.png", "headroom.png"} < {path.name for path in (suite / "bench").iterdir()}


def test_a_baseline_that_fails_is_named(bench: Any) -> None:
    """Without it the best baseline is slower, and "over the best" larger."""
    assert "suite/level1/1_First.py: without the baseline graph: no graphs here" in bench("--limit", 1).out


@pytest.mark.slow
def test_some_of_a_suite_are_drawn_by_a_seed(bench: Any) -> None:
    drawn = {seed: last(bench("--json", "--limit", 2, "--draw", seed))["problems"] for seed in range(5)}
    found = {seed: tuple(one["problem"] for one in problems) for seed, problems in drawn.items()}
    assert all(names[1] == "suite/level2/5_Third.py" for names in found.values())
    assert {names[0] for names in found.values()} == {"suite/level1/1_First.py", "suite/level1/2_Second.py"}


def test_what_is_finished_is_not_done_again(bench: Any, suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = last(bench("--json"))
    judge = BenchJudge()
    outcome = bench("--json", judge=judge)
    assert "3 problems, 3 of them finished." in outcome.err
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # so that "auto" is the CPU
    assert "3 of them finished" in bench("--device", "auto", judge=judge).out, "whatever the device is called"
    assert judge.opened == 0, "a judge was started for nothing"
    assert last(outcome) == first
    (suite / "suite" / "level2" / "8_Fourth.py").write_text(f"{PROBLEM_TEXT}\n# problem 8\n")
    assert "4 problems, 3 of them finished." in bench(judge=judge).out
    assert judge.opened == 1


def test_an_interrupted_benchmark_says_how_to_go_on_and_does(bench: Any) -> None:
    judge = BenchJudge(breaking="problem 1")
    judge.error = KeyboardInterrupt()
    outcome = bench("--json", judge=judge)
    assert outcome.code == 130
    assert "Interrupted with 2 problems left; the same command continues." in outcome.err
    assert json.loads(outcome.out)["all"]["n"] == 1
    assert judge.closed
    idle = BenchJudge(breaking="problem")
    idle.error = KeyboardInterrupt()
    outcome = bench("--json", "--seed", 9, judge=idle)
    assert (json.loads(outcome.out)["all"]["n"], outcome.code) == (0, 130), "before the first result"
    again = bench("--json")
    assert "3 problems, 1 of them finished." in again.err
    assert last(again)["all"]["n"] == 3


def test_one_problem_that_fails_does_not_end_the_benchmark(bench: Any) -> None:
    judge = BenchJudge(breaking="problem 0")
    found = last(bench("--json", judge=judge))
    assert (found["all"]["n"], found["all"]["not_judged"]) == (2, 1)
    assert found["problems"][0]["not_judged"] == "the reference does not run"
    assert judge.opened == 2, "judges that failed are started again"
    mended = BenchJudge()
    assert last(bench("--json", judge=mended))["all"]["n"] == 3, "it is tried again"


def test_a_problem_that_cannot_be_judged_is_in_no_share(bench: Any) -> None:
    flags = {"problem 0": {"degenerate": "zeros pass."}, "problem 1": {"low-signal": "it hardly varies"}}
    outcome = bench("--json", judge=BenchJudge(flags))
    found = last(outcome)
    assert [found["all"][name] for name in ("n", "not_judged", "correct", "fast_1")] == [2, 1, 2, 1.0]
    assert [found["without_flawed"][name] for name in ("n", "not_judged")] == [1, 0]
    assert found["problems"][0]["not_judged"] == "degenerate: zeros pass"
    assert "not judged: degenerate: zeros pass" in outcome.err
    idle = BenchJudge()
    assert "3 of them finished" in bench(judge=idle).out
    assert last(bench("--json", "--fresh", judge=BenchJudge()))["all"]["n"] == 3, "the judge has learnt since"


def test_a_kernel_that_won_no_contest_is_not_faster_than_eager(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = BenchJudge()
    monkeypatch.setattr(judge, "failing", {FAST.id, SLOW.id})
    found = last(bench("--json", judge=judge))["all"]
    assert (found["correct"], found["fast_1"]) == (0, 0.0), "both failed when they were measured again"
    replace_starts(monkeypatch, StartingKernel(kernel=kernel(TILE=8), note="start"))
    slower = last(bench("--json", "--seed", 5))["all"]
    assert (slower["correct"], slower["fast_1"]) == (3, 0.0)


def test_kernels_of_others_are_scored(bench: Any, suite: Path) -> None:
    files = {"1_problem_1_sample_0": WRONG, "1_problem_1_sample_1": FAST, "1_problem_1_sample_2": FASTER}
    runs = kernels(suite / "runs", **files, **{"1_problem_9_sample_0": FAST})
    judge = BenchJudge()
    outcome = bench("--from", runs, "--json", judge=judge)
    assert "3 kernels for 1 problem." in outcome.err
    assert "Without a kernel, and so not correct: 1 problem of these levels." in outcome.err
    assert "For no problem of the suite: 1 file, e.g. level_1_problem_9_sample_0_kernel.py" in outcome.err
    found = last(outcome)
    assert list(found["levels"]) == ["1"], "no kernel is for the other level"
    assert [found["all"][name] for name in ("n", "correct", "fast_1", "fast_2")] == [2, 1, 0.5, 0.5]
    first, second = found["problems"]
    assert (first["kernel"], first["evaluations"], first["correct"]) == (FASTER.id, 3, 2), "the best of several counts"
    assert second["failure"] == "no kernel"
    assert judge.asked.total() == 3
    assert not (suite / "bench" / "kernels").exists()
    (runs / "level_1_problem_2_sample_0_kernel.py").write_text(WRONG.source)
    again = BenchJudge()
    found = last(bench("--from", runs, "--json", judge=again))
    assert again.asked.total() == 1, "only the new file"
    assert found["problems"][1]["failure"] == "wrong: wrong by 3"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that the recipe judges: those with WRONG are incorrect, others twice as fast as eager by UNROLL."""
    asked: list[str] = []

    def judge(problem: Problem, kernel: Kernel, *_: Any) -> RecipeVerdict:
        if "problem 1" in problem.source:
            raise EvaluatorError("the reference fails")
        asked.append(kernel.id)
        if kernel.id == WRONG.id:
            return RecipeVerdict(outcome=Outcome.INCORRECT, compiled=True, message="5 of 5 trials differ")
        speedup = 3.0 if kernel.id == FASTER.id else 1.5
        times = {"mean": 2.0, "std": 0.0, "min": 2.0, "max": 2.0, "calls": 100.0}
        return RecipeVerdict(outcome=Outcome.CORRECT, compiled=True, kernel_ms=times, speedup=speedup)

    monkeypatch.setattr(recipe_bench, "judge_by_recipe", judge)
    return asked


def test_kernels_of_others_are_compared_by_the_recipe(bench: Any, suite: Path, recipe: list[str]) -> None:
    files = {"1_problem_1_sample_0": WRONG, "1_problem_1_sample_1": FAST, "1_problem_1_sample_2": FASTER}
    runs = kernels(suite / "runs", **files, **{"1_problem_2_sample_0": FAST, "2_problem_5_sample_0": WRONG})
    words = ("--from", runs, "--judge", "kernelbench", "--pass-at", 1, "--json")
    found = last(bench(*words))
    assert (found["judge"], "not kbevolve's verdict" in found["note"]) == ("kernelbench", True)
    assert recipe == [WRONG.id, FAST.id, FASTER.id, WRONG.id]
    every, (first, second, third) = found["all"], found["problems"]
    assert [every[name] for name in ("n", "correct", "not_judged", "fast_1")] == [2, 1, 1, 0.5]
    assert every["geomean"] == pytest.approx(3.0)
    assert every["pass_1"] == pytest.approx((2 / 3 + 0) / 2)
    assert (first["kernel"], first["kernelbench_speedup"], first["correct"]) == (FASTER.id, 3.0, 2)
    assert "speedup" not in first
    assert (second["not_judged"], third["failure"]) == ("the reference fails", "incorrect: 5 of 5 trials differ")
    outcome = bench(*words)
    assert len(recipe) == 4, "what has a verdict is not judged again"
    assert last(outcome) == found
    for text in (
        outcome.out,
        (suite / "bench" / "recipe.md").read_text(),
        (suite / "bench" / "recipe.jsonl").read_text(),
    ):
        assert "for comparison only: not kbevolve's verdict" in text
    assert not (suite / "kbevolve.db").exists(), "no archive gets a speedup of the recipe"
    last(bench(*words, "--set", "kernelbench.trials=1"))
    assert len(recipe) == 8, "a verdict holds for its settings"


def test_a_file_of_verdicts_that_is_none_is_named(bench: Any, suite: Path, recipe: list[str]) -> None:
    (suite / "bench").mkdir()
    (suite / "bench" / "recipe.jsonl").write_text("{}\n")
    outcome = bench("--from", kernels(suite / "runs", **{"1_problem_1_sample_0": FAST}), "--judge", "kernelbench")
    assert outcome.code == 2
    assert "recipe.jsonl holds a line that is no verdict" in outcome.err


def test_kernels_of_others_are_kept_when_the_judge_is_interrupted(bench: Any, suite: Path) -> None:
    runs = kernels(suite / "runs", **{"1_problem_1_sample_0": FAST, "2_problem_5_sample_0": SLOW})
    judge = BenchJudge()
    judge.interrupt_at = 1
    assert bench("--from", runs, judge=judge).code == 130
    with Archive(suite / "kbevolve.db") as archive:
        assert len(archive.kernels.evaluations(FAST.id)) == 1
    again = BenchJudge()
    assert last(bench("--from", runs, "--json", judge=again))["all"]["n"] == 3
    assert set(again.asked) == {SLOW.id}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nothing-like-it",), "no problem matches 'nothing-like-it'"),
        (("--level", "3"), "no problems of level 3; the levels are 1, 2"),
        (("--suite", "nowhere"), "no suite 'nowhere'"),
        (("--from", "nowhere"), "nowhere is not a folder"),
        (("--judge", "kernelbench"), "--judge kernelbench is for kernels that others wrote"),
        (("--pass-at", "1"), "--pass-at is for kernels that others wrote"),
        (("--draw", "1"), "--draw is for a part of the problems; say how many with --limit N"),
        (("--strategy", "tree"), "strategy tree needs a model"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_run(bench: Any, words: tuple[str, ...], why: str) -> None:
    judge = BenchJudge()
    outcome = bench(*words, judge=judge)
    assert outcome.code == 2
    assert why in outcome.err
    assert judge.opened == 0


@pytest.mark.slow
def test_real_kernels_are_judged_on_real_problems(
    kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import torch\n\n\nclass {name}(torch.nn.Module):\n    def forward(self, x):\n        return {of}\n"
    asked = "\n\ndef get_inputs():\n    return [torch.randn(65536)]\n\n\ndef get_init_inputs():\n    return []\n"
    for folder in ("suite", "runs"):
        (tmp_path / folder).mkdir()
    for number, (of, better) in enumerate((("x * x", "torch.square(x)"), ("torch.tanh(x)", "x")), start=1):
        (tmp_path / "suite" / f"{number}_p.py").write_text(text.format(name="Model", of=of) + asked)
        file = f"level_1_problem_{number}_sample_0_kernel.py"
        (tmp_path / "runs" / file).write_text(text.format(name="ModelNew", of=better))
    words = ("--device", "cpu", "--preset", "smoke", "--json")
    found = last(kbevolve("bench", "--suite", "suite", "--from", "runs", *words))
    level = found["levels"]["suite"]
    assert (level["n"], level["correct"], level["fast_0"]) == (2, 1, 0.5)
    assert [one["failure"].partition(":")[0] for one in found["problems"]] == ["", "wrong"]


@pytest.mark.slow
def test_each_device_works_on_a_problem_of_its_own(
    kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two judges on one CPU: real ones, because the processes of the devices know no double."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite").mkdir()
    for number, of in enumerate(("x * x", "torch.tanh(x)", "missing(x)"), start=1):
        (tmp_path / "suite" / f"{number}_p.py").write_text(
            f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {of}\n\n\n"
            "def get_inputs():\n    return [torch.randn(65536)]\n\n\ndef get_init_inputs():\n    return []\n"
        )
    words = ("--suite", "suite", "--devices", "cpu,cpu", "--preset", "smoke", "--max-evaluations", 1, "--json")
    outcome = kbevolve("bench", *words)
    found = {one["problem"]: one for one in last(outcome)["problems"]}
    assert [bool(one["run"]) for one in found.values()] == [True, True, False]
    assert "missing" in list(found.values())[2]["not_judged"]
    lines = [line for line in outcome.err.splitlines() if line.startswith("[")]
    assert len(lines) == 3
    with Archive(tmp_path / "kbevolve.db") as archive:
        runs = {summary.run.id for summary in archive.runs.summaries()}
    assert runs == {one["run"] for one in found.values() if one["run"]}
    again = kbevolve("bench", *words)
    assert "3 problems, 2 of them finished." in again.err
