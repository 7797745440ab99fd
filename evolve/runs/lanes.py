"""Problems side by side: each device has a process of its own, which takes the next problem when it is done with one.

One search seldom keeps several devices busy, because few of its kernels are under way at once. Processes divide the
cores of the machine, so that the builds of one disturb no timing of another.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.fleet.judge_host import pin_to_share
from kbevolve.evaluators.worker.supervisor import die_with

#: Signals that are no further apart are one interruption.
_ONE_INTERRUPTION_SECONDS = 0.5
#: What a process reports: a line for the user, the problem that it begins, why that failed ("" when it did not), or its
#: own end.
_SAID, _BEGUN, _DONE, _ENDED = "said", "begun", "done", "ended"

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

    Where a process dies, its problem has failed, and the others go on: a device that fails costs one problem.

    Args:
        names: of the problems.
        devices: of this machine; one process for each, at most as many as there are problems.
        open_work: called in each process.
        say: shows a line to the user.
        done: called with the name of a problem that is done, and why it failed or "".

    Raises:
        KeyboardInterrupt: the user interrupted; the processes have ended in order.
        KBEvolveError: one raised it, because no other problem would do better; or all died.
    """
    context = multiprocessing.get_context("spawn")
    following = context.Value("i", 0)
    lanes: dict[Connection, _Lane] = {}
    deaths: list[str] = []
    used = devices[: len(names)]
    try:
        for reader, lane in _started(context, used, (names, following, open_work)):
            lanes[reader] = lane
        while lanes:
            for reader in [one for one in wait([*lanes]) if isinstance(one, Connection)]:
                lane = lanes[reader]
                try:
                    kind, what = reader.recv()
                except EOFError:
                    del lanes[reader]
                    lane.process.join()
                    if not lane.ended:
                        deaths.append(f"the process of {lane.process.name} died with exit code {lane.process.exitcode}")
                        if lane.problem:
                            done(lane.problem, deaths[-1])
                else:
                    lane.take(kind, what, say=say, done=done)
        if len(deaths) == len(used):
            raise EvaluatorError(f"{'; '.join(deaths)}; the same command continues")
    finally:
        _end(lanes)


@dataclass(slots=True)
class _Lane:
    """The process of a device, from this side."""

    process: BaseProcess
    #: That it works on; "" for none.
    problem: str = ""
    #: Whether it reported its end.
    ended: bool = False

    def take(self, kind: str, what: Any, *, say: Callable[[str], None], done: Callable[[str, str], None]) -> None:
        """Take a report of the process. Raises what ended it."""
        if kind == _SAID:
            say(what)
        elif kind == _BEGUN:
            self.problem = what
        elif kind == _DONE:
            done(self.problem, what)
            self.problem = ""
        else:
            self.ended = True
            if what is not None:
                raise what


def _started(
    context: SpawnContext, devices: Sequence[Device], work: tuple[Any, ...]
) -> Iterator[tuple[Connection, _Lane]]:
    """A process for each device, one after the other, and the pipe that it reports to."""
    for number, device in enumerate(devices):
        reader, writer = context.Pipe(duplex=False)
        arguments = (device, (number, len(devices)), *work, writer, os.getpid())
        process = context.Process(target=_work, args=arguments, name=device.torch_name)
        process.start()
        writer.close()  # so that the pipe ends with the process
        yield reader, _Lane(process)


def _end(lanes: Mapping[Connection, _Lane]) -> None:
    """End the processes in order. A later Ctrl-C leaves them to end with this process."""
    with _one_interruption():
        for lane in lanes.values():
            lane.process.terminate()  # by SIGTERM, which is as Ctrl-C there
        for reader, lane in lanes.items():
            with contextlib.suppress(EOFError):
                while True:
                    reader.recv()  # a process whose reports are not read may not end
            lane.process.join()


@contextlib.contextmanager
def _one_interruption() -> Iterator[None]:
    """Ignore what interrupts in the first moment: programs such as `timeout` signal a process and then its group."""
    began = time.monotonic()

    def interrupt(*_: object) -> None:
        if time.monotonic() - began > _ONE_INTERRUPTION_SECONDS:
            raise KeyboardInterrupt

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal that has no function is ignored, or ends this process at once.
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


def _work(
    device: Device,
    share: tuple[int, int],
    names: Sequence[str],
    following: Any,
    open_work: OpenWork,
    reports: Connection,
    parent: int,
) -> None:
    die_with(parent)
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the parent alone, which ends all lanes
    pin_to_share(*share)
    error: BaseException | None = None
    try:
        with open_work(device, lambda line: reports.send((_SAID, line))) as work:
            while (at := _next(following)) < len(names):
                reports.send((_BEGUN, names[at]))
                reports.send((_DONE, work(names[at])))
    except KeyboardInterrupt:
        error = KeyboardInterrupt()
    except KBEvolveError as failure:
        error = failure
    except Exception as failure:
        error = EvaluatorError(f"{device.torch_name}: {type(failure).__name__}: {' '.join(str(failure).split())}")
    with contextlib.suppress(OSError):  # the parent may be gone
        reports.send((_ENDED, error))
    # After an interruption a thread may still be inside torch, where Python's own exit would abort the process.
    os._exit(0)


def _next(following: Any) -> int:
    with following.get_lock():
        at: int = following.value
        following.value += 1
    return at
