"""Judges as actors of a Ray cluster: the near side that asks one, and what Ray makes on the far side.

Ray is told to restart nothing: the fleet counts deaths, and hires again.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.fleet.judge_host import (
    Commission,
    Introduction,
    JudgeDied,
    JudgeHost,
    Order,
    Reply,
    read,
    sent,
    silent,
)

if TYPE_CHECKING:
    from kbevolve.evaluators.builds.pool import RemoteBuilder

#: Seconds between two looks at whether a judge that cannot be placed yet is still wanted.
_WAIT_SECONDS = 0.5
#: Places that are tried for an actor, and seconds between two tries: a host that is silent is given up after 15 to 20.
_MOST_PLACES, _PLACE_SECONDS = 10, 2.0
#: Seconds that an actor has to end its workers in order; then Ray ends it.
_LEAVE_SECONDS = 10.0
#: Threads of an actor. Its judge takes fewer kernels at once (`work.width` ends at 64), and threads that wait are free.
_THREADS = 66


class ActorJudge:
    """Implements `FarJudge` by an actor of a Ray cluster."""

    introduction: Introduction

    def __init__(
        self, ray: Any, commission: Commission, room: Mapping[str, float], given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Have it placed, wherever and whenever there is room, and wait until it is ready.

        Raises:
            EvaluatorError: its device is not there, or it is not wanted any more.
            JudgeDied: it did not start; `_Misplaced` when its host went away meanwhile.
        """
        self._ray = ray
        self._ended = threading.Event()
        # No restarts by Ray: the fleet counts deaths, and hires again.
        actor = ray.remote(ActorHost).options(
            **room, max_restarts=0, max_task_retries=0, max_concurrency=_THREADS, scheduling_strategy="SPREAD"
        )
        self._actor = actor.remote(commission)
        try:
            first = self._actor.introduce.remote()
            while not ray.wait([first], timeout=_WAIT_SECONDS)[0]:
                if given_up():
                    raise EvaluatorError("starting a judge was given up")
            reply: Reply = ray.get(first)
            self.introduction = read(reply)
        except ray.exceptions.RayError as error:
            self.close()
            raise _Misplaced(one_line(error)) from None
        except BaseException:
            self.close()
            raise

    def ask(self, order: Order, *, seconds: float) -> Any:
        """What the judge found; blocks.

        Raises:
            JudgeDied: it or its host died, before or meanwhile, or it gave no answer within so many seconds.
            KBEvolveError: whatever the judge raised on purpose.
        """
        if self._ended.is_set():
            raise JudgeDied("it was ended")
        try:
            reply: Reply = self._ray.get(self._actor.carry_out.remote(sent(order)), timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise silent(seconds) from None
        except self._ray.exceptions.RayError as error:
            raise JudgeDied(one_line(error)) from None
        return read(reply)

    def close(self) -> None:
        """End it: in order when it listens, by force when it does not."""
        if self._ended.is_set():
            return
        self._ended.set()
        with contextlib.suppress(self._ray.exceptions.RayError):
            if hasattr(self, "introduction"):
                self._ray.get(self._actor.close.remote(), timeout=_LEAVE_SECONDS)
        with contextlib.suppress(Exception):  # gone already, and the connection with it
            self._ray.kill(self._actor)


class _Misplaced(JudgeDied):
    """An actor was placed on a host that was gone, or went."""


def hire_actor(ray: Any, commission: Commission, room: Mapping[str, float], given_up: Callable[[], bool]) -> ActorJudge:
    """An actor somewhere. Until Ray knows that a host is gone, it places actors there: that is no device's fault."""
    for _ in range(_MOST_PLACES):
        try:
            return ActorJudge(ray, commission, room, given_up)
        except _Misplaced as failure:
            last = failure
            time.sleep(_PLACE_SECONDS)
    raise last


class ActorHost(JudgeHost):
    """The far side: what an actor is made from."""

    def __init__(self, commission: Commission) -> None:
        # Ray sets it to the cores that were reserved; a judge uses those that there are.
        os.environ.pop("OMP_NUM_THREADS", None)
        # Its GPU's number among its host's says which share of the cores is its own.
        number = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        share = int(number) % commission.sharing if number.isdigit() else 0
        commission = replace(commission, share=share, sharing=commission.sharing if number.isdigit() else 1)
        # CPU judges have reserved the cores that tasks would need.
        super().__init__(commission, build_elsewhere=_far_builder() if commission.device != "cpu" else None)


def _far_builder() -> "RemoteBuilder":
    import ray

    from kbevolve.evaluators.fleet.far_builds import FarBuilder  # brings torch

    return FarBuilder(ray)


def one_line(error: BaseException) -> str:
    """What Ray says about a death, without ids, and without its list of what usually causes such."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    told = next((line for line in lines if " because " in line), lines[0])
    return f"{type(error).__name__}: {told.partition('. Some common causes')[0][:300].rstrip('.')}"
