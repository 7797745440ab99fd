"""Workers of a GPU are forked without Inductor until a server with it is ready; an early server serves its judge."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.sandbox import launch
from kbevolve.evaluators.sandbox.fork_servers import ForkServers
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool
from tests.evaluators.sandbox.run_in_worker import KERNEL

CPU = find_device("cpu")
GPU = replace(CPU, type="cuda")


@dataclass(slots=True)
class Server:
    """Stands for a fork server."""

    inductor: bool = False
    is_ready: bool = False
    alive: bool = True
    closed: bool = False
    directory: Path = Path("/nowhere")
    files: dict[str, Any] = field(default_factory=dict)

    def allow(self, files: dict[str, Any]) -> None:
        self.files = files

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """All servers, in the order in which they were opened."""
    found: list[Server] = []

    def open_one(device: object, *, inductor: bool = False) -> Server:
        found.append(Server(inductor))
        return found[-1]

    monkeypatch.setattr(launch, "open_fork_server", open_one)
    return found


def test_a_gpu_s_workers_come_without_inductor_until_a_server_with_it_is_ready(opened: list[Server]) -> None:
    servers = ForkServers(GPU)
    first = servers.living()
    full, plain = opened
    assert (full.inductor, plain.inductor) == (True, False)
    assert first is servers.living() is plain
    assert not servers.complete
    full.is_ready = True
    assert servers.complete
    assert servers.living() is full
    full.alive = False
    assert servers.living() is plain, "a new one with Inductor is not ready"
    assert full.closed
    plain.alive = False
    assert servers.living() is opened[-1] is not plain
    servers.close()
    assert all(server.closed for server in opened)


def test_a_cpu_has_one_server(opened: list[Server]) -> None:
    servers = ForkServers(CPU)
    assert servers.complete
    assert servers.living() is servers.living() is opened[0]
    assert not opened[0].inductor
    servers.failed(opened[0])  # type: ignore[arg-type]
    assert servers.living() is opened[0], "once may be bad luck"
    servers.worked()
    servers.failed(opened[0])  # type: ignore[arg-type]
    assert servers.living() is opened[0], "one worked meanwhile"
    servers.failed(opened[0])  # type: ignore[arg-type]
    assert servers.living() is None, "forked workers do not work here"
    servers.worked()
    assert servers.living() is None


def test_an_early_server_is_told_what_its_workers_may_read(
    opened: list[Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kbevolve.evaluators.sandbox.permissions.find_gpu", lambda device: None)
    early = Server(directory=tmp_path)
    servers = ForkServers(GPU, early)  # type: ignore[arg-type]
    assert servers.living() is early
    assert [server.inductor for server in opened] == [True]
    assert str(tmp_path) in early.files["writable"]


@pytest.fixture
def early() -> Iterator[ForkServer]:
    found = launch.open_fork_server_early("cpu")
    if found is None:
        pytest.skip("no worker is forked here")
    with closing(found):
        yield found


@pytest.mark.slow
def test_an_early_server_forks_a_pool_s_workers(early: ForkServer) -> None:
    with closing(WorkerPool(CPU, DeviceGate(CPU), fork_server=early)) as pool:
        worker = pool.take()
        assert worker._launched.directory.is_relative_to(early.directory)
        assert worker.ask({"request": "import", "source": KERNEL}, seconds=20)["ok"]
        worker.kill()
    assert not early.alive
    assert not early.directory.exists()


@pytest.mark.slow
def test_an_unused_early_server_ends_with_its_last_reference() -> None:
    found = launch.open_fork_server_early("cpu")
    if found is None:
        pytest.skip("no worker is forked here")
    process, directory = found._process, found.directory
    del found
    assert process.poll() is not None
    assert not directory.exists()
