"""Compilers of a whole Ray cluster for one judge: each order is a task for a core, wherever one is free."""

import contextlib
from functools import partial
from typing import Any

from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.compiler import toolchain
from kbevolve.evaluators.builds.product import BuildFailure, BuildResult, FailureReason, from_plain
from kbevolve.evaluators.builds.standalone import build_here

#: Host and device part are compiled side by side, where a host has the cores.
_CORES = 2
#: Seconds that an order may wait for a core somewhere; then its judge's host builds it. A full cluster may take long,
#: and one in which no host is left that could do it takes for ever.
_QUEUE_SECONDS = 120.0
#: A task whose host dies is done again elsewhere.
_RETRIES = 2


class FarBuilder:
    """Builds orders as tasks; to be made in a process that is connected to the cluster. For several threads."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        cores = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        # More than any host has would never be found.
        self._task = ray.remote(num_cpus=min(_CORES, cores), max_retries=_RETRIES)(build_here)

    def __call__(self, order: BuildRequest, seconds: float) -> BuildResult | None:
        """What came of an order; None when no host could carry it out as this one would have.

        A host with another torch or compiler refuses: what it builds is no answer to the same question.
        """
        ask = partial(self._task.remote, architecture=order.architecture, tools=toolchain(), seconds=seconds)
        reference = ask(order.to_json())
        try:
            # The time limit is the compilers'; a task that waits for a core is in a queue as any other.
            return from_plain(self._ray.get(reference, timeout=_QUEUE_SECONDS + seconds))
        except self._ray.exceptions.OutOfMemoryError as error:
            return BuildFailure(why=FailureReason.MEMORY, log=str(error))
        except self._ray.exceptions.RayError:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
            return None
