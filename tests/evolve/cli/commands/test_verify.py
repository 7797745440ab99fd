"""`kbevolve verify`: kernels are measured again, the evaluations are added, and the exit code says whether all held."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.commands import verify as command
from kbevolve.evolve.runs import verification
from tests.small_archive import confirmation


class RepeatingJudge:
    """Finds a share of the speedup that the archive has, or what is said for a kernel."""

    def __init__(self, sample: Any, share: float = 1.0) -> None:
        self.sample, self.share = sample, share
        self.said: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.device = Device(type="cpu", index=0, fingerprint=sample.run.device, description="A Test Processor")

    def make(self, device: Device, settings: EvaluationSettings) -> "RepeatingJudge":
        assert settings == EvaluationSettings(precision="fp32")
        return self

    def __enter__(self) -> "RepeatingJudge":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        assert problem == self.sample.problem
        self.asked.append(kernel.id)
        speedup = (self.sample.evaluations[kernel.id].timing.speedup or 0.0) * self.share
        found = {
            "verdict": Verdict.CORRECT, "speedup": speedup, "speedup_low": speedup * 0.99,
            "speedup_high": speedup * 1.01, "time_ms": 2.0 / speedup if speedup else None, "reference_ms": 2.0,
        }  # fmt: skip
        return grouped(Evaluation,
            kernel=kernel.id, problem=problem.id, device=self.device.fingerprint, precision="fp32",
            **found | self.said.get(kernel.id, {}),
        )  # fmt: skip


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, small_archive: Any) -> RepeatingJudge:
    judge = RepeatingJudge(small_archive)
    monkeypatch.setattr(command, "find_device", lambda choice: judge.device)
    monkeypatch.setattr(verification, "plain_judge", judge.make)
    return judge


@pytest.fixture
def verify(kbevolve: Any, small_archive: Any) -> Any:
    return lambda *words: kbevolve("verify", "--archive", small_archive.path, *words)


def correct_ones(sample: Any) -> list[str]:
    found = [one for one in sample.evaluations.values() if one.verdict is Verdict.CORRECT]
    return [one.kernel for one in sorted(found, key=lambda one: -(one.timing.speedup_low or 0.0))]


def test_the_latest_runs_best_is_measured_again_and_added(verify: Any, judge: Any, small_archive: Any) -> None:
    outcome = verify()
    assert outcome.code == 0, outcome.err
    assert judge.asked == [small_archive.best]
    assert "1 of 1 speedup held on A Test Processor" in outcome.out
    with Archive(small_archive.path) as archive:
        first, again = archive.kernels.evaluations(small_archive.best)
        assert first == small_archive.evaluations[small_archive.best]
        assert again.timing.speedup_high == pytest.approx(first.timing.speedup * 1.01)
        assert again.device == small_archive.run.device
        (dated,) = archive._connection.rows("select at from evaluations order by number desc limit 1")
        assert dated["at"]


def test_top_kernels_of_a_run_best_first(verify: Any, judge: Any, small_archive: Any) -> None:
    outcome = verify("latest", "--top", "3")
    assert outcome.code == 0
    assert judge.asked == correct_ones(small_archive)[:3]


def test_the_published_kernel_is_first_and_its_confirmed_speedup_counts(
    verify: Any, judge: Any, small_archive: Any
) -> None:
    champion = correct_ones(small_archive)[2]
    with Archive(small_archive.path) as archive:
        archive.add_contest([confirmation(small_archive.run.id, champion, speedup=1.5)])
    judge.said[champion] = {"speedup": 1.5, "speedup_low": 1.49, "speedup_high": 1.51}
    outcome = verify("--json")
    assert outcome.code == 0, "the first evaluation was higher, but it was not published"
    (found,) = json.loads(outcome.out)["kernels"]
    assert (found["kernel"], found["confirmed"], found["before"]["speedup"]) == (champion, True, 1.5)


def test_what_does_not_hold_is_named_and_the_exit_code_says_so(verify: Any, judge: Any, small_archive: Any) -> None:
    best, second, third = correct_ones(small_archive)[:3]
    judge.said[best] = {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.1}
    judge.said[second] = {"verdict": Verdict.WRONG, "speedup": None, "message": "error 3e-1"}
    outcome = verify(best, second[:12], third, "--json")
    assert outcome.code == 1
    facts = json.loads(outcome.out)
    assert (facts["device"], facts["held"], facts["of"]) == (small_archive.run.device, 1, 3)
    slower, wrong, holds = facts["kernels"]
    assert slower["doubt"] == "3.00× [2.90, 3.10] now, 3.93× [3.81, 4.05] before"
    assert (wrong["verdict"], wrong["doubt"]) == ("wrong", "wrong this time: error 3e-1")
    assert (holds["holds"], holds["doubt"]) == (True, "")
    assert holds["now"]["speedup"] == small_archive.evaluations[third].timing.speedup
    plain = verify(best, second, third)
    assert plain.code == 1
    assert "1 of 3 speedups held" in plain.out
    lines = [line.split("  ") for line in plain.out.splitlines() if line.startswith((best, second, third))]
    assert [line[-2:] and [cell.strip() for cell in line if cell.strip()][4] for line in lines] == ["no", "no", "yes"]


@pytest.mark.parametrize(("share", "holds"), [(0.972, True), (0.90, False), (1.3, True)])
def test_an_interval_must_reach_the_old_one(verify: Any, judge: Any, share: float, holds: bool) -> None:
    """The old interval is 3 % wide to each side, the new one 1 %; half a percent is noise between processes."""
    judge.share = share
    assert verify().code == (0 if holds else 1)


@pytest.mark.parametrize(("card", "holds"), [("host/first", False), ("host/second", True), ("", False)])
def test_another_card_of_the_model_may_be_two_percent_slower(
    judge: Any, small_archive: Any, card: str, holds: bool
) -> None:
    kernel = small_archive.evaluations[small_archive.best].kernel
    with Archive(small_archive.path) as archive:
        claim = verification.claim_of(archive, archive.kernels.get(kernel), small_archive.run, judge.device)
    assert claim.then is not None
    claim = replace(claim, then=changed(claim.then, device_instance="host/first"))
    judge.share = 0.955
    now = changed(judge.evaluate(small_archive.problem, claim.kernel), device_instance=card)
    assert (not verification.doubt(claim, now, 0.005)) == holds


def test_on_another_device_it_must_not_be_slower_than_eager(verify: Any, judge: Any, small_archive: Any) -> None:
    judge.device = Device(type="cpu", index=0, fingerprint="cpu/Another", description="Another Processor")
    judge.share = 0.5
    outcome = verify("--json")
    assert outcome.code == 0
    (found,) = json.loads(outcome.out)["kernels"]
    then = small_archive.evaluations[small_archive.best].timing.speedup
    assert (found["before"], found["elsewhere"]) == (None, {small_archive.run.device: then})
    text = verify(small_archive.best).out
    assert f"3.93× on {small_archive.run.device}" in text
    judge.device = Device(type="cpu", index=0, fingerprint="cpu/Third", description="A Third Processor")
    judge.share = 0.1
    outcome = verify("--json")
    assert outcome.code == 1
    (found,) = json.loads(outcome.out)["kernels"]
    assert "of eager's speed here, 3.93× [3.81, 4.05] on cpu/Test Processor" in found["doubt"]
    assert set(found["elsewhere"]) == {small_archive.run.device, "cpu/Another"}


def test_names_that_are_not_there_are_reported_first(verify: Any, judge: Any, make_archive: Any) -> None:
    outcome = verify("zz")
    assert outcome.code == 1
    assert "no kernel and no run 'zz'" in outcome.err
    assert judge.asked == []


def test_ctrl_c_keeps_what_was_measured(verify: Any, judge: Any, small_archive: Any) -> None:
    evaluate = judge.evaluate

    def interrupted(problem: Problem, kernel: Kernel) -> Evaluation:
        if judge.asked:
            raise KeyboardInterrupt
        return evaluate(problem, kernel)

    judge.evaluate = interrupted
    outcome = verify("--top", "3", "--json")
    assert outcome.code == 130
    facts = json.loads(outcome.out)
    assert (facts["held"], facts["of"]) == (1, 3)
    with Archive(small_archive.path) as archive:
        assert len(archive.kernels.evaluations(small_archive.best)) == 2


def test_a_kernel_of_no_run_says_what_to_do(verify: Any, judge: Any, small_archive: Any, tmp_path: Path) -> None:
    kernel = Kernel.from_source("class ModelNew: pass\n")
    found = grouped(Evaluation,
        kernel=kernel.id, problem=small_archive.problem.id, device="d", precision="fp32", verdict=Verdict.WRONG,
    )  # fmt: skip
    with Archive(small_archive.path) as archive:
        archive.add_found([(small_archive.problem, kernel, found)])
    outcome = verify(kernel.id)
    assert outcome.code == 1
    assert "no run created kernel" in outcome.err
    assert "kbevolve evaluate kernel.py --problem NAME" in outcome.err
