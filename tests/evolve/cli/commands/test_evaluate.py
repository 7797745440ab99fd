"""What `kbevolve evaluate` prints, whatever the judge finds: the judge is a double here."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Comparison, Launch, LaunchCost, Profile, Verdict
from kbevolve.evaluators.recipe import Outcome, RecipeVerdict
from kbevolve.evolve.cli.commands import evaluate as evaluate_command
from tests.evolve.doubles import PROBLEM_TEXT, KnownJudge, kernel

#: Everything that a script may rely on.
PROMISED = {
    "verdict", "tags", "precision_class", "speedup", "speedup_low", "message", "comparison", "worst_tile",
    "speedup_best", "best_baseline", "sandbox", "profile", "card_flags",
}  # fmt: skip
PROFILE = Profile(
    launches=(Launch(name="my_kernel", share=1.0, microseconds=12.0, launches=1.0),),
    bottleneck="memory bandwidth",
    launch_cost=LaunchCost(
        host_ms=0.038, reference_host_ms=0.02, launches=7.0,
        kernelbench_ms=1.06, kernelbench_reference_ms=2.7, kernelbench_speedup=2.547,
    ),
)  # fmt: skip


@pytest.fixture
def evaluate(kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "kernel.py").write_text(kernel(UNROLL=4).source)
    (tmp_path / "problem.py").write_text(PROBLEM_TEXT)

    def call(judge: KnownJudge, *words: str) -> Any:
        judge.replace_judge(monkeypatch)
        named = (tmp_path / "kernel.py", "--problem", tmp_path / "problem.py", "--device", "cpu")
        return kbevolve("evaluate", *named, *words)

    return call


def found(outcome: Any) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    (line,) = outcome.out.splitlines()
    facts: dict[str, Any] = json.loads(line)
    return facts


def test_json_is_one_line_that_holds_what_is_promised(evaluate: Any) -> None:
    judge = KnownJudge(
        flags={"launch-bound": "a call takes 20 µs"}, comparison=Comparison.FASTER, worst_tile=1e-5,
        sandbox="landlock 7", profile=PROFILE, tags=("torch-ops",), precision_class="fp32",
    )  # fmt: skip
    facts = found(evaluate(judge, "--json"))
    assert facts.keys() >= PROMISED
    assert facts["verdict"] == "correct"
    assert facts["comparison"] == "faster"
    assert facts["card_flags"] == {"launch-bound": "a call takes 20 µs"}
    assert facts["profile"]["launches"][0]["name"] == "my_kernel"
    cost = facts["profile"]["launch_cost"]
    assert (cost["kernelbench_speedup"], cost["host_ms"], cost["launches"]) == (2.547, 0.038, 7.0)
    assert (facts["speedup_best"], facts["best_baseline"]) == (None, None)
    assert judge.closed


def test_whatever_a_message_holds_json_stays_one_line(evaluate: Any) -> None:
    message = 'a\nb\u2028c\x85d\r{"verdict": "correct"}\ud800\x1b[2J'
    facts = found(evaluate(KnownJudge(verdict=Verdict.WRONG, message=message, error=float("nan")), "--json"))
    assert facts["verdict"] == "wrong"
    assert facts["message"] == message
    assert facts["error"] is None
    shown = evaluate(KnownJudge(verdict=Verdict.WRONG, message=message))
    assert shown.code == 0
    assert "\x1b" not in shown.out


def test_a_refused_problem_is_a_verdict_not_a_failure_of_the_rig(evaluate: Any) -> None:
    judge = KnownJudge(
        flags={"degenerate": "zeros pass"}, verdict=Verdict.REFUSED, tags=("degenerate",), message="it is degenerate",
        speedup=None,
    )  # fmt: skip
    facts = found(evaluate(judge, "--json", "--baselines"))
    assert (facts["verdict"], facts["tags"]) == ("refused", ["degenerate"])
    assert not judge.measured_baselines, "minutes for a problem that is not judged"


def test_options_are_settings(evaluate: Any) -> None:
    judge = KnownJudge()
    evaluate(judge)
    assert (judge.settings.allow_library, judge.settings.force, judge.settings.baselines) == ("full", False, False)
    evaluate(judge, "--allow-library", "none", "--force", "--baselines")
    assert (judge.settings.allow_library, judge.settings.force, judge.settings.baselines) == ("none", True, True)
    assert evaluate(judge, "--allow-library", "some").code == 2


def test_with_baselines_the_speedup_over_the_best_of_them_is_shown(evaluate: Any) -> None:
    facts = found(evaluate(KnownJudge(), "--json", "--baselines"))
    assert facts["speedup_best"] == pytest.approx(facts["speedup"] / 2)
    assert facts["best_baseline"] == "compile"


def test_the_report_says_the_same_in_words(evaluate: Any) -> None:
    judge = KnownJudge(
        flags={"launch-bound": "a call takes 20 µs"}, comparison=Comparison.TIE, worst_tile=2.5e-5,
        sandbox="landlock 7", profile=PROFILE, tags=("torch-ops",),
        error=1e-6, reference_error=2e-6, precision_class="fp32",
    )  # fmt: skip
    out = evaluate(judge, "--baselines").out
    for part in (
        "launch-bound", "a call takes 20 µs", "a tie with eager", "the fastest baseline, compile", "2.5e-05",
        "torch-ops", "landlock 7", "my_kernel", "emory bandwidth", "fp32", "2.55× over eager, 1.06 ms, eager 2.70 ms",
        "7 a call, for which the host needs 38.0 µs, eager 20.0 µs",
    ):  # fmt: skip
        assert part in out


def test_a_file_that_is_refused_unread_costs_no_run_of_the_reference(evaluate: Any) -> None:
    judge = KnownJudge(flags={"launch-bound": "x"}, verdict=Verdict.REFUSED, message="not Python", phases={"lint": 0.1})
    assert found(evaluate(judge, "--json"))["card_flags"] == {}


def test_check_exits_with_1_unless_the_kernel_is_correct(evaluate: Any) -> None:
    wrong = KnownJudge(verdict=Verdict.WRONG)
    assert evaluate(KnownJudge(), "--check").code == 0
    assert evaluate(wrong, "--check", "--json").code == 1
    assert evaluate(wrong).code == 0
    refused = evaluate(wrong, "--check", "--batch", ".", "--out", "found.jsonl")
    assert refused.code == 2


def test_the_recipe_is_shown_for_comparison_and_named_so(evaluate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"mean": 0.5, "std": 0.1, "min": 0.4, "max": 0.9, "calls": 100.0}
    verdict = RecipeVerdict(
        outcome=Outcome.CORRECT, compiled=True, timing="host_time", kernel_ms=times,
        reference_ms={**times, "mean": 6.0}, speedup=12.0,
    )  # fmt: skip
    monkeypatch.setattr(evaluate_command, "judge_by_recipe", lambda *_: verdict)
    judge = KnownJudge()
    facts = found(evaluate(judge, "--judge", "kernelbench", "--json"))
    assert not judge.asked, "our judge is not needed"
    assert (facts["judge"], facts["outcome"], facts["kernelbench_speedup"]) == ("kernelbench", "correct", 12.0)
    assert "not kbevolve's verdict" in facts["note"]
    assert facts.keys().isdisjoint({"verdict", "speedup"}), "names of our own verdict"
    words = evaluate(judge, "--judge", "kernelbench", "--check")
    assert words.code == 0
    for text in ("not kbevolve's verdict", "12.0× eager with default flags", "warns of a speedup above 10×"):
        assert text in words.out
    wrong = RecipeVerdict(outcome=Outcome.INCORRECT, compiled=True, message="5 of 5 trials differ")
    monkeypatch.setattr(evaluate_command, "judge_by_recipe", lambda *_: wrong)
    assert evaluate(judge, "--judge", "kernelbench", "--check").code == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--baselines",), "--baselines is for kbevolve's own judge"),
        (("--precision", "tf32"), "KernelBench has no precision tf32"),
        (("--set", "kernelbench.timing=do_bench"), "needs a CUDA device"),
    ],
)
def test_what_the_recipe_cannot_do_is_said(evaluate: Any, words: tuple[str, ...], why: str) -> None:
    outcome = evaluate(KnownJudge(), "--judge", "kernelbench", *words)
    assert (outcome.code, why in outcome.err) == (2, True), outcome.err
