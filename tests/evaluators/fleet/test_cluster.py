"""Judges in a real Ray cluster of two hosts on this machine, with evaluators that need no device.

Each host is a set of Ray's own processes; when its raylet is killed, the rest of the cluster sees what it would see of
a machine that lost its power.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.fleet import cluster as cluster_module
from kbevolve.evaluators.fleet import fleet as fleet_module
from kbevolve.evaluators.fleet.cluster import Cluster, find_cluster, reachable
from kbevolve.evaluators.fleet.fleet import Fleet
from kbevolve.evaluators.sandbox.process_table import processes
from tests.evaluators.simulated import NAME, faulty, pid_of
from tests.evolve.doubles import kernel, problem

ROOT = Path(__file__).parents[3]
SETTINGS = EvaluationSettings()
#: Seconds in which a cluster must notice that an actor or a host is gone, and have an actor made anew.
NOTICED = 60.0
#: A cluster that asks its hosts for signs of life more often than every few seconds.
ALERT = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}


class Hosts:
    """A cluster whose second host can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": str(directory)}
        self.cluster = RayCluster(initialize_head=True, head_node_args=head)
        self.second: Any = None
        self.start_second()

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def start_second(self) -> None:
        self.second = self.cluster.add_node(num_cpus=1)

    def kill_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)

    def work(self, **options: Any) -> WorkSettings:
        return WorkSettings(workers="ray", ray_address=self.address, **options)


def soon(what: Callable[[], bool]) -> None:
    patience = time.monotonic() + NOTICED
    while not what():
        assert time.monotonic() < patience, "it was not noticed"
        time.sleep(0.05)


# ---- without a connection -------------------------------------------------------------------------------------------


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):  # it ended
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def listening(owners: list[int]) -> set[str]:
    """Addresses on which processes listen, IPv4 or mapped into IPv6, as /proc/net/tcp and tcp6 have them (proc(5))."""
    inodes = set()
    for pid in owners:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                last = bytes.fromhex(fields[1].partition(":")[0])[-4:]
                found.add(".".join(str(byte) for byte in reversed(last)))
    return found


@pytest.mark.slow
def test_a_cluster_of_its_own_is_for_this_machine_only_and_leaves_nothing() -> None:
    cluster = Cluster(None, cpus=3)
    directory = cluster._directory
    assert directory is not None
    assert directory.is_dir()
    assert str(cluster) == "1 host, 0 GPUs, 3 cores"
    ours = [process.pid for process in processes() if str(directory) in command_line(process.pid)]
    assert ours
    assert listening(ours) == {"127.0.0.1"}
    cluster.close()
    cluster.close()
    assert not directory.exists()
    soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ours))


@pytest.mark.slow
def test_a_command_that_ends_early_leaves_nothing() -> None:
    code = "from kbevolve.evaluators.fleet.cluster import Cluster; print(Cluster(None)._directory)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ended.stdout.startswith("/")
    assert not Path(ended.stdout.strip()).exists()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EvaluatorError, match=r"pip install 'kbevolve\[ray\]'"):
        Cluster(None)


def test_where_nothing_listens_there_is_no_waiting() -> None:
    assert not reachable("127.0.0.1:9")
    assert reachable("auto")
    with pytest.raises(
        EvaluatorError, match=r"no Ray cluster at 127\.0\.0\.1:9: nothing listens there; start one with"
    ):
        Cluster("127.0.0.1:9")


# ---- a cluster of two hosts ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    # Not tmp_path: a socket's name has at most 107 characters. RAY_TMPDIR hides this cluster from other users.
    with (
        tempfile.TemporaryDirectory(prefix="kbr-", dir="/tmp", ignore_cleanup_errors=True) as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", directory)
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        # On the user's hosts the judges are installed; these are part of the tests.
        patch.setenv("PYTHONPATH", str(ROOT))
        Path(directory, "ray").mkdir()
        ray = cluster_module._import_ray()
        with cluster_module._environment({**cluster_module._LOCAL_ENVIRONMENT, **ALERT}):
            made = Hosts(Path(directory))
        try:
            yield made
        finally:
            ray.shutdown()
            made.cluster.shutdown()
            # The last of Ray's processes write while they end.
            soon(lambda: not any(directory in command_line(process.pid) for process in processes()))


@pytest.fixture(scope="module")
def fleet(hosts: Hosts) -> Iterator[Fleet]:
    work = hosts.work(devices=("cpu", "cpu"), width=2)
    cluster, devices = find_cluster(work)
    with cluster.fleet(devices, SETTINGS, work, judge=NAME) as made:
        yield made


def pids(fleet: Fleet) -> set[int]:
    return {judge.info.pid for judge in fleet._slots.judges}


def in_the_middle(fleet: Fleet, do: Callable[[], None]) -> list[Evaluation]:
    """Judge 16 kernels side by side, and call `do` when some are done and others are not."""
    asked: list[Kernel] = [faulty(SECONDS=0.25, NUMBER=number) for number in range(16)]
    with ThreadPoolExecutor(fleet.width) as threads:
        futures: list[Future[Evaluation]] = [threads.submit(fleet.evaluate, problem(), one) for one in asked]
        # Any six: one that waits for the start of a judge takes longer than all others together.
        soon(lambda: sum(future.done() for future in futures) >= 6)
        assert not all(future.done() for future in futures)
        do()
        found = [future.result(timeout=NOTICED) for future in futures]
    assert [one.kernel for one in found] == [one.id for one in asked], "one was lost"
    return found


@pytest.mark.slow
def test_one_judge_for_each_host(hosts: Hosts) -> None:
    cluster, devices = find_cluster(hosts.work())
    try:
        assert devices == (find_device("cpu"),) * 2
        assert str(cluster) == "2 hosts, 0 GPUs, 2 cores"
        with pytest.raises(
            EvaluatorError, match="--devices asks for 1 GPU, the Ray cluster has 0; ask for fewer, or leave"
        ):
            cluster.devices(("cuda:0",))
    finally:
        cluster.close()


@pytest.mark.slow
def test_the_work_is_spread_and_no_key_travels(fleet: Fleet) -> None:
    assert fleet.width == 4
    assert fleet.device == find_device("cpu")
    found = in_the_middle(fleet, lambda: None)
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    assert {pid_of(one) for one in found} == pids(fleet)
    assert len(pids(fleet) | {os.getpid()}) == 3
    for pid in pids(fleet):
        assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0, "what is timed runs at the priority of everything else"
    contest = fleet.compete(problem(), [kernel(), kernel(TILE=32)], rounds=3)
    assert contest.times.keys() == {kernel().id, kernel(TILE=32).id}
    assert [one.name for one in fleet.baselines(problem())] == ["compile", "graph"]


@pytest.mark.slow
def test_an_actor_that_is_killed_costs_a_retry(fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    before = pids(fleet)
    found = in_the_middle(fleet, lambda: os.kill(min(before), signal.SIGKILL))
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    soon(lambda: len(pids(fleet)) == 2)
    assert len(pids(fleet) & before) == 1
    assert {pid_of(one) for one in in_the_middle(fleet, lambda: None)} == pids(fleet)
    killed = fleet.evaluate(problem(), faulty(FAULT="kill"))
    assert killed.verdict is Verdict.CRASHED
    assert "worker process has died" in killed.message
    soon(lambda: len(pids(fleet)) == 2)
    with pytest.raises(EvaluatorError, match=r"^no worker starts here; reboot$"):
        fleet.evaluate(problem(), faulty(FAULT="error"))
    assert {one.verdict for one in in_the_middle(fleet, lambda: None)} == {Verdict.CORRECT}
    assert capfd.readouterr().out == "", "Ray's own messages are not shown"


@pytest.mark.slow
def test_an_actor_that_hangs_is_ended(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pids(fleet)
    with monkeypatch.context() as patch:
        patch.setattr(fleet_module, "_OVERHEAD_SECONDS", 1.0)
        patch.setattr(fleet, "settings", SETTINGS.model_copy(update={"total_seconds": 0.01}))
        found = fleet.evaluate(problem(), faulty(SECONDS=100))
    assert found.verdict is Verdict.CRASHED
    assert found.message.count("it gave no answer within 1 s") == 2
    soon(lambda: len(pids(fleet)) == 2)
    assert not pids(fleet) & before
    assert {one.verdict for one in in_the_middle(fleet, lambda: None)} == {Verdict.CORRECT}


@pytest.mark.slow
def test_a_host_that_dies_costs_a_retry_and_is_used_again_when_it_is_back(hosts: Hosts, fleet: Fleet) -> None:
    soon(lambda: len(pids(fleet)) == 2)
    before = pids(fleet)
    found = in_the_middle(fleet, hosts.kill_second)
    assert {one.verdict for one in found} == {Verdict.CORRECT}
    # An actor may outlive the raylet of its host a little and still work, until a request to it fails.
    soon(lambda: in_the_middle(fleet, lambda: None) != [] and len(pids(fleet)) == 1)
    assert pids(fleet) < before
    assert fleet.evaluate(problem(), kernel()).verdict is Verdict.CORRECT
    hosts.start_second()
    soon(lambda: len(pids(fleet)) == 2)
    assert {pid_of(one) for one in in_the_middle(fleet, lambda: None)} == pids(fleet)
