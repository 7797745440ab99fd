"""Hardware counters: the command for Nsight Compute, and the reading of its output."""

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest

from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.feedback import counters
from kbevolve.evaluators.feedback.bottleneck import DRAM, SM, STALL
from kbevolve.evaluators.feedback.counters import METRICS, command, parse_readings, read_counters

GPU = Device(type="cuda", index=0, fingerprint="cuda/H", description="a GPU")
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
MEMORY, MULTIPROCESSORS = list(METRICS)[:2]
PROBLEM = parse_problem(
    "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n", name="p", path=Path("p.py")
)


def output(*launches: dict[str, str]) -> str:
    """The raw page as CSV: what the program printed, names, units, one row a launch."""
    names = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Device", "CC"]
    names += sorted({metric for launch in launches for metric in launch} - set(names))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, quoting=csv.QUOTE_ALL, extrasaction="ignore")
    writer.writeheader()
    writer.writerow({"gpu__time_duration.sum": "ns", MEMORY: "%"})
    writer.writerows({"ID": str(number), **launch} for number, launch in enumerate(launches))
    return (
        "==PROF== Connected to process 41 (/usr/bin/python3.12)\nthe kernel says hello\n"
        '==PROF== Profiling "mine": 0%....50%....100% - 21 passes\n==PROF== Disconnected from process 41\n'
        f"{text.getvalue()}"
    )


SHORT = {"Kernel Name": "fill", "gpu__time_duration.sum": "2,048", MEMORY: "3.5", MULTIPROCESSORS: "1"}
LONG = {
    "Kernel Name": "mine(float const*, float*)",
    "gpu__time_duration.sum": "1,234,567.5",
    MEMORY: "81.25",
    MULTIPROCESSORS: "20.5",
    "launch__registers_per_thread": "168",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "n/a",
    STALLED.format("long_scoreboard"): "6",
    STALLED.format("barrier"): "3",
    STALLED.format("wait"): "0.75",
    STALLED.format("drain"): "0.25",
}


def test_the_longest_launch_is_read() -> None:
    found = parse_readings(output(SHORT, LONG))
    assert found.refusal == ""
    assert found.kernel == "mine(float const*, float*)"
    assert found.readings == {
        DRAM: 81.25,
        SM: 20.5,
        "registers a thread": 168.0,
        f"{STALL}long_scoreboard": 60.0,
        f"{STALL}barrier": 30.0,
        f"{STALL}wait": 7.5,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU", "administrators"),
        ("Traceback\nRuntimeError: boom\n==WARNING== No kernels were profiled.", "RuntimeError: boom"),
        ("", "nothing"),
        (output(), "no launch"),
    ],
)
def test_a_refusal_is_one_line(text: str, words: str) -> None:
    found = parse_readings(text)
    assert words in found.refusal
    assert "\n" not in found.refusal
    assert not found.readings


def test_the_command_names_all_metrics() -> None:
    words = command(Path("/tmp/request.json"))
    assert words[0] == "ncu"
    assert words[words.index("--profile-from-start") + 1] == "off"
    metrics = words[words.index("--metrics") + 1].split(",")
    assert set(METRICS) <= set(metrics)
    assert words[-1] == "/tmp/request.json"


def test_a_cpu_and_a_machine_without_ncu_are_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device(type="cpu", index=0, fingerprint="cpu", description="a CPU")
    assert "CPU" in read_counters(PROBLEM, "", device=cpu, precision="fp32", seconds=1).refusal
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no ncu" in read_counters(PROBLEM, "", device=GPU, precision="fp32", seconds=1).refusal


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable named ncu; a test writes its script into the returned file."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setattr(
        counters, "worker_environment", lambda device, directory, inherited: {"PATH": inherited["PATH"]}
    )
    return program


def test_ncu_gets_the_request_and_no_variable_of_the_user(ncu: Path, tmp_path: Path) -> None:
    (tmp_path / "output").write_text(output(LONG))
    ncu.write_text(
        f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/request\nenv > {tmp_path}/env\ncat {tmp_path}/output\n'
    )
    found = read_counters(PROBLEM, "class ModelNew: ...", device=GPU, precision="tf32", seconds=20)
    assert found.readings[DRAM] == 81.25
    request = json.loads((tmp_path / "request").read_text())
    assert request == {"problem": PROBLEM.source, "kernel": "class ModelNew: ...", "precision": "tf32"}
    assert "SOME_API_KEY" not in (tmp_path / "env").read_text()


def test_ncu_is_stopped_with_all_its_processes(ncu: Path, tmp_path: Path) -> None:
    ncu.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/pid\nwait\n")
    found = read_counters(PROBLEM, "", device=GPU, precision="fp32", seconds=2.0)
    assert "stopped after" in found.refusal
    child = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    with contextlib.suppress(OSError):  # it is gone
        assert "zombie" in child.read_text()


def test_rates_and_clocks_have_the_units_of_their_names() -> None:
    rates = {"dram__bytes.sum.per_second": "2,130,000,000,000", "smsp__cycles_elapsed.avg.per_second": "1,755,000,000"}
    found = parse_readings(output({**LONG, **rates})).readings
    assert found["DRAM GB/s"] == pytest.approx(2130)
    assert found["SM clock MHz"] == pytest.approx(1755)
    assert found["registers a thread"] == 168
