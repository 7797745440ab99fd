"""Problems side by side: each device has a process of its own, which takes the next problem when it is done with one.

One search seldom keeps several devices busy, because few of its kernels are under way at once. Processes divide the
cores of the machine, so that the builds of one disturb no timing of another.
"""

import contextlib
import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.fleet.judge_host import pin_to_share
from kbevolve.evaluators.worker.supervisor import die_with

#: Seconds between two looks whether a process died.
_LOOK_SECONDS = 1.0
#: What a process reports: a line for the user, a problem and why it failed ("" when it did not), or its own end.
_SAID, _DONE, _ENDED = "said", "done", "ended"

#: Does what is missing for a problem, by its name; returns why that failed, "" when it did not.
Work = Callable[[str], str]


class OpenWork(Protocol):
    """Makes what a process needs. It is sent there, so it must be one that pickle takes."""

    def __call__(self, device: Device, say: Callable[[str], None], /) -> AbstractContextManager[Work]:
        """`say` shows a line to the user."""
        ...


def work_side_by_side(
    names: Sequence[str],
    devices: Sequence[Device],
    open_work: OpenWork,
    *,
    say: Callable[[str], None],
    done: Callable[[str, str], None],
) -> None:
    """Work on each of the named problems once, in this order, on whichever device is free.

    Args:
        names: of the problems.
        devices: of this machine; one process for each, at most as many as there are problems.
        open_work: called in each process.
        say: shows a line to the user.
        done: called with the name of a problem that is done, and why it failed or "".

    Raises:
        KeyboardInterrupt: the user interrupted; the processes have ended in order.
        KBEvolveError: one raised it, because no other problem would do better; or one died.
    """
    context = multiprocessing.get_context("spawn")
    following, reports = context.Value("i", 0), context.Queue()
    lanes = [
        context.Process(
            target=_lane,
            args=(device, (number, min(len(devices), len(names))), names, following, open_work, reports, os.getpid()),
            name=f"kbevolve-{device.torch_name}",
        )
        for number, device in enumerate(devices[: len(names)])
    ]
    for lane in lanes:
        lane.start()
    open_lanes = {lane.pid: lane for lane in lanes}
    try:
        while open_lanes:
            died = [lane for lane in open_lanes.values() if not lane.is_alive()]
            try:
                kind, *report = reports.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if died:  # a moment ago, and it left no report
                    raise EvaluatorError(
                        f"the process of {died[0].name.removeprefix('kbevolve-')} died with exit code "
                        f"{died[0].exitcode}; the same command continues"
                    ) from None
                continue
            if kind == _SAID:
                say(*report)
            elif kind == _DONE:
                done(*report)
            else:
                pid, error = report
                del open_lanes[pid]
                if error is not None:
                    raise error
    finally:
        for lane in lanes:
            if lane.pid in open_lanes and lane.is_alive():
                lane.terminate()  # by SIGTERM, which is as Ctrl-C there
        _join(lanes, reports)


def _join(lanes: Sequence[Any], reports: Any) -> None:
    for lane in lanes:
        while lane.is_alive():
            with contextlib.suppress(queue.Empty):
                reports.get(timeout=0.1)  # a process whose reports are not read does not end
        lane.join()


def _lane(
    device: Device,
    share: tuple[int, int],
    names: Sequence[str],
    following: Any,
    open_work: OpenWork,
    reports: Any,
    parent: int,
) -> None:
    die_with(parent)
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the parent alone, which ends all lanes
    pin_to_share(*share)
    error: BaseException | None = None
    try:
        with open_work(device, lambda line: reports.put((_SAID, line))) as work:
            while (at := _next(following)) < len(names):
                reports.put((_DONE, names[at], work(names[at])))
    except KeyboardInterrupt:
        error = KeyboardInterrupt()
    except KBEvolveError as failure:
        error = failure
    except Exception as failure:
        error = EvaluatorError(f"{device.torch_name}: {type(failure).__name__}: {' '.join(str(failure).split())}")
    reports.put((_ENDED, os.getpid(), error))


def _next(following: Any) -> int:
    with following.get_lock():
        at: int = following.value
        following.value += 1
    return at
