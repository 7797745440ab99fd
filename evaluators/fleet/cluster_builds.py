"""Compilers of a whole Ray cluster for one judge: each build request is a task for a core on any host."""

import contextlib
from typing import Any

from kbevolve.evaluators.builds.build_job import build_once
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.product import BuildFailure, BuildResult, FailureReason

#: Host and device part are compiled side by side, where a host has the cores.
_CORES = 2
#: Seconds that a request may wait for a core; then its judge's host builds it. In a full cluster the wait may be long,
#: and without a host that can build it the wait is endless.
_QUEUE_SECONDS = 120.0
#: A task whose host dies runs again elsewhere.
_RETRIES = 2


class ClusterBuilder:
    """Builds requests as tasks, in a process that is connected to the cluster. For several threads."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        cores = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        # Ray never finds more cores than the largest host has.
        self._task = ray.remote(num_cpus=min(_CORES, cores), max_retries=_RETRIES)(build_once)

    def __call__(self, request: BuildRequest, seconds: float) -> BuildResult | None:
        """The result of a request; None when no host could build it as this one does.

        A host with another torch or compiler refuses, because it would build something else.
        """
        task = self._task.remote(request, tools=toolchain(), seconds=seconds)
        try:
            # `seconds` limits the compilers; the wait for a core comes on top.
            result: BuildResult = self._ray.get(task, timeout=_QUEUE_SECONDS + seconds)
            return result
        except self._ray.exceptions.OutOfMemoryError as error:
            return BuildFailure(why=FailureReason.MEMORY, log=str(error))
        except self._ray.exceptions.RayError:
            with contextlib.suppress(Exception):
                self._ray.cancel(task, force=True)
            return None
