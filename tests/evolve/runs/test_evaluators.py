"""The judges of a run: its results do not depend on their number or place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, SettingsError
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evaluators.sandbox import launch
from kbevolve.evolve.cli.settings_options import choice_of
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import evaluators, session
from kbevolve.evolve.runs.evaluators import JudgeDevices, find_judge_devices
from kbevolve.evolve.runs.session import open_run, run_session
from tests.evaluators.simulated import NAME
from tests.evolve.cli.commands.test_run import KERNEL, PROBLEM, RUN, type_in
from tests.evolve.doubles import KnownJudge, context_of, kernel, problem, replace_starts

TREE: dict[str, Any] = {
    "search": {"generations": 5, "islands": 3, "migration_every": 2, "seed": 3, "lookahead": 1},
    "device": "cpu",
    "inductor_seed": False,
}
#: What this is not about.
SMALL = (
    "search.islands=1",
    "inductor_seed=false",
    "evaluation.baselines=false",
    "evaluation.confirm_rounds=0",
    "evaluation.profile=false",
)


def bred(path: Path, monkeypatch: pytest.MonkeyPatch, **work: Any) -> dict[str, Any]:
    """The archive of a run with simulated judges: everything but moments, seconds and who judged."""
    starts = (StartingKernel(kernel=kernel(), note="naive"), StartingKernel(kernel=kernel(UNROLL=2), note="better"))
    replace_starts(monkeypatch, *starts)
    monkeypatch.setattr(session.secrets, "token_hex", lambda _: "0000")
    settings = Settings.from_tree({**TREE, "work": work})
    devices = find_judge_devices(settings)
    with Archive(path) as archive:
        run = open_run(archive, problem(), devices.device, settings)
        ending = run_session(context_of(archive, run, devices.device, settings), devices, judge=NAME)
        assert ending.reason is StopReason.GENERATIONS
        assert [one.name for one in ending.baselines] == ["compile", "graph"]
        found = archive.runs.evaluations(run.id)
        champion = archive.runs.champion(run.id)
        assert champion is not None
        return {
            "device": run.device,
            "births": [
                (birth.id.removeprefix(run.id), birth.operator, birth.state, birth.parents, birth.kernel, birth.note)
                for birth in archive.runs.births(run.id)
            ],
            "verdicts": {name: (one.verdict, one.timing.speedup, one.message) for name, one in found.items()},
            "placements": [
                (one.island, one.niche, one.kernel, one.generation, one.via) for one in archive.runs.placements(run.id)
            ],
            "champion": (champion.kernel, champion.speedup, champion.generation),
        }


@pytest.mark.slow
def test_the_archive_does_not_depend_on_the_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = bred(tmp_path / "one.db", monkeypatch)
    assert len(alone["births"]) >= 15
    assert {verdict for verdict, _, _ in alone["verdicts"].values()} == {Verdict.CORRECT, Verdict.WRONG}
    pair = bred(tmp_path / "two.db", monkeypatch, devices=["cpu", "cpu"], width=2)
    assert pair == alone
    spread = bred(tmp_path / "ray.db", monkeypatch, workers="ray", devices=["cpu", "cpu"], width=2)
    assert spread == alone


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "twice.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


@pytest.mark.slow
def test_two_judges_of_one_processor(folder: Path) -> None:
    """As a user types it, with real judging; and one judge goes on with it."""
    words = [word for word in RUN if word not in ("--device", "cpu")]
    small = [word for name in SMALL for word in ("--set", name)]
    done = type_in(folder, *words, *small, "--devices", "cpu,cpu", "--generations", "0")
    assert done.returncode == 0, done.stderr
    assert f"2 × {find_device('cpu').description}" in " ".join(done.stdout.split())
    with Archive(folder / "kbevolve.db", create=False) as archive:
        run = archive.runs.get()
        assert run.device == find_device("cpu").fingerprint
        assert {one.verdict for one in archive.runs.evaluations(run.id).values()} == {Verdict.CORRECT}
    resumed = type_in(folder, "resume", "--device", "cpu", "--generations", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert "2 ×" not in resumed.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--device", "cpu", "--devices", "cpu,cpu"), "both --device and --devices"),
        (
            ("--device", "cpu", "--workers", "ray"),
            "Ray chooses the machines; name the kind of device",
        ),
        (("--devices", "cpu,gpu7"), "'gpu7' is no device"),
        (("--devices", "cpu", "--workers", "slurm"), "slurm"),
        (("--workers", "ray", "--set", "work.ray_address=127.0.0.1:9"), "no Ray cluster at 127.0.0.1:9"),
    ],
)
def test_misuse_is_refused_before_the_run_begins(
    folder: Path, kbevolve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(folder)
    done = kbevolve("run", "--problem", "twice.py", *words)
    assert done.code in (1, 2)
    assert complaint in done.err
    assert not (folder / "kbevolve.db").exists()


def test_a_run_of_a_cluster_goes_on_with_a_device_of_this_machine(
    tmp_path: Path, kbevolve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {"workers": "ray", "ray_address": "127.0.0.1:9"}
    settings = Settings.from_tree({**TREE, "search": {"generations": 0, "islands": 1}, "work": work})
    with Archive(tmp_path / "kbevolve.db") as archive:
        open_run(archive, problem(), find_device("cpu"), settings)
    replace_starts(monkeypatch, StartingKernel(kernel=kernel(), note="naive"))
    KnownJudge().replace_judge(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert "no Ray cluster at" in kbevolve("resume").err
    resumed = kbevolve("resume", "--device", "cpu")
    assert resumed.code == 0, resumed.err


def test_the_short_options_are_settings() -> None:
    short = {"work__devices": ["cuda:0", "cuda:1"], "work__workers": "ray", "device": None}
    assert choice_of(**short).overrides == {"work.devices": ["cuda:0", "cuda:1"], "work.workers": "ray"}


def test_what_is_shown_of_them() -> None:
    device = Device(type="cuda", index=0, fingerprint="cuda/x", description="NVIDIA X")
    assert JudgeDevices(devices=(device,), device=device).description == "NVIDIA X"
    assert JudgeDevices(devices=(device,) * 2, device=device).description == "2 × NVIDIA X"


def test_one_device_is_judged_in_this_process() -> None:
    settings = Settings.from_tree({"device": "cpu"})
    assert find_judge_devices(settings) == JudgeDevices(devices=(find_device("cpu"),), device=find_device("cpu"))
    with pytest.raises(SettingsError, match="no device"):
        find_judge_devices(Settings.from_tree({"work": {"devices": ["gpu"]}}))
    with pytest.raises(EvaluatorError, match="cuda:77"):
        find_judge_devices(Settings.from_tree({"work": {"devices": ["cuda:77"]}}))


@pytest.mark.slow
def test_doctor_tells_of_ray(kbevolve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # whatever cluster runs on this machine
    config = tmp_path / "settings.yaml"
    config.write_text("work: {ray_address: '127.0.0.1:9'}\n")
    findings = {
        one["name"]: one for one in json.loads(kbevolve("doctor", "--json", "--config", config).out)["findings"]
    }
    assert not findings["Ray"]["found"]
    assert "no Ray cluster at 127.0.0.1:9" in findings["Ray"]["detail"]


@pytest.mark.parametrize(
    ("choice", "gpus", "opened_for"),
    [("auto", 1, "cuda"), ("cuda", 1, "cuda"), ("auto", 0, "cpu"), ("cpu", 1, "cpu"), ("cpu", 0, "cpu")],
)
def test_a_fork_server_is_opened_early_for_the_device_that_is_probably_found(
    monkeypatch: pytest.MonkeyPatch, choice: str, gpus: int, opened_for: str
) -> None:
    server, cpu = object(), find_device("cpu")
    monkeypatch.setattr(evaluators, "all_gpus", lambda: (object(),) * gpus)
    monkeypatch.setattr(launch, "open_fork_server_early", lambda device_type: {opened_for: server}[device_type])
    monkeypatch.setattr(evaluators, "find_devices", lambda names: (cpu,) * len(names))  # as torch without CUDA finds it
    settings = Settings.from_tree({"device": choice})
    assert find_judge_devices(settings).fork_server is None, "no judge will be opened"
    found = find_judge_devices(settings, judged=True).fork_server
    assert found is (server if opened_for == "cpu" else None)
    several = Settings.from_tree({"work": {"devices": ["cpu", "cpu"]}})
    assert find_judge_devices(several, judged=True).fork_server is None, "each judge has a process of its own"
