"""Judges as actors of a Ray cluster: the near side that asks one, and the class from which Ray makes the far side."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.fleet.judge_host import JudgeDied, JudgeHost, JudgeInfo, JudgeReply, JudgeRequest, JudgeSpec

#: Seconds between two checks whether a start was given up.
_POLL_SECONDS = 0.5
#: Attempts to place an actor, and seconds between two of them: a host that does not respond is given up after 15 to 20.
_MOST_ATTEMPTS, _ATTEMPT_SECONDS = 10, 2.0
#: Seconds that an actor has to end its workers in order; then Ray ends it.
_LEAVE_SECONDS = 10.0
#: Threads of an actor. Its judge takes fewer kernels at once (`work.width` is at most 64), and idle threads are free.
_THREADS = 66


class ActorJudge:
    """Implements `RemoteJudge` by an actor of a Ray cluster."""

    info: JudgeInfo

    def __init__(
        self, ray: Any, spec: JudgeSpec, resources: Mapping[str, float], given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Have Ray place it where `resources` are free, and wait until it is ready; raises as `StartJudge`.

        `_Misplaced`: its host went away meanwhile.
        """
        self._ray = ray
        self._ended = threading.Event()
        # Ray restarts nothing: the fleet counts deaths and starts another judge.
        actor = ray.remote(ActorHost).options(
            **resources, max_restarts=0, max_task_retries=0, max_concurrency=_THREADS, scheduling_strategy="SPREAD"
        )
        self._actor = actor.remote(spec)
        try:
            ready = self._actor.start.remote()
            while not ray.wait([ready], timeout=_POLL_SECONDS)[0]:
                if given_up():
                    raise EvaluatorError("starting a judge was given up")
            reply: JudgeReply = ray.get(ready)
            self.info = reply.result()
        except ray.exceptions.RayError as error:
            self.close()
            raise _Misplaced(one_line(error)) from None
        except BaseException:
            self.close()
            raise

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        """Implements `RemoteJudge.ask`."""
        if self._ended.is_set():
            raise JudgeDied("it was ended")
        try:
            reply: JudgeReply = self._ray.get(self._actor.handle.remote(request.portable()), timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise JudgeDied(f"it gave no answer within {seconds:.0f} s") from None
        except self._ray.exceptions.RayError as error:
            raise JudgeDied(one_line(error)) from None
        return reply.result()

    def close(self) -> None:
        """End it: in order when it responds, else by force."""
        if self._ended.is_set():
            return
        self._ended.set()
        with contextlib.suppress(self._ray.exceptions.RayError):
            if hasattr(self, "info"):
                self._ray.get(self._actor.close.remote(), timeout=_LEAVE_SECONDS)
        with contextlib.suppress(Exception):  # the actor, and the connection with it, may be gone
            self._ray.kill(self._actor)


class _Misplaced(JudgeDied):
    """Ray placed an actor on a host that was gone, or that went away."""


def start_actor(ray: Any, spec: JudgeSpec, resources: Mapping[str, float], given_up: Callable[[], bool]) -> ActorJudge:
    """An actor on some host. Ray places actors on a host that is gone until it notices: no device's fault."""
    for _ in range(_MOST_ATTEMPTS):
        try:
            return ActorJudge(ray, spec, resources, given_up)
        except _Misplaced as failure:
            last = failure
            time.sleep(_ATTEMPT_SECONDS)
    raise last


class ActorHost(JudgeHost):
    """The far side of an `ActorJudge`."""

    def __init__(self, spec: JudgeSpec) -> None:
        # Ray sets it to the cores that were reserved; a judge uses all that there are.
        os.environ.pop("OMP_NUM_THREADS", None)
        # The number of its GPU on the host decides its share of the cores.
        number = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        alone = replace(spec, sharing=1)
        super().__init__(replace(spec, share=int(number) % spec.sharing) if number.isdigit() else alone)


def one_line(error: BaseException) -> str:
    """Ray's message about a death, without ids and without its list of usual causes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    cause = next((line for line in lines if " because " in line), lines[0])
    return f"{type(error).__name__}: {cause.partition('. Some common causes')[0][:300].rstrip('.')}"
