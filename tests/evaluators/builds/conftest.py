"""Workers with a build pool."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.forkserver import ForkServer
from tests.evaluators.builds.pooled import CPU, WorkerWithPool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildPool]:
    with closing(BuildPool(CPU, EvaluationSettings(), DiskCache(tmp_path_factory.mktemp("disk_cache")))) as pool:
        yield pool


@pytest.fixture(scope="module")
def module_worker(pool: BuildPool, fork_server: ForkServer | None) -> Iterator[WorkerWithPool]:
    place = WorkerWithPool(pool, fork_server)
    yield place
    place.worker.kill()


@pytest.fixture
def shared(module_worker: WorkerWithPool) -> WorkerWithPool:
    """A worker for several tests, whose extensions have different names."""
    module_worker.requests.clear()
    module_worker.away.clear()
    module_worker.worker.built.clear()
    return module_worker


@pytest.fixture
def place(pool: BuildPool, fork_server: ForkServer | None) -> Iterator[WorkerWithPool]:
    """A worker for one test."""
    place = WorkerWithPool(pool, fork_server)
    yield place
    place.worker.kill()
