"""A fork server for tests that need many workers: a forked worker starts in a hundredth of the time."""

from collections.abc import Iterator

import pytest

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.sandbox import directories, launch
from kbevolve.evaluators.sandbox.forkserver import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer | None]:
    """None where this machine cannot confine forked workers."""
    server = launch.open_fork_server(find_device("cpu"))
    yield server
    if server is not None:
        server.close()
        directories.remove(server.directory)
