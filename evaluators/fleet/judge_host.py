"""A judge made where its device is and asked from elsewhere: the far side of a fleet.

The same host lives in a process of this machine (`judge_process.py`) and in an actor of a cluster (`cluster.py`). What
crosses are frozen records of plain values; both ends are this program, so that they may cross pickled. No key, no path
and no code of a candidate's is ever run by that: a kernel travels as text, and only the judge's workers run it.
"""

import contextlib
import importlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbevolve import __version__
from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import EvaluatorError, KBEvolveError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, find_device

if TYPE_CHECKING:
    from kbevolve.evaluators.builds.pool import RemoteBuilder
    from kbevolve.evaluators.judging.judge import Judge

#: The class that judges, as "module:Class". Tests and simulations name another one with the same methods.
JUDGE = "kbevolve.evaluators.judging.judge:Judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commission:
    """What a far judge is made from; the same for every judge of a run but for its device."""

    #: Name of the device on the far side, e.g. "cuda:0": a far judge sees one GPU and no other.
    device: str
    settings: EvaluationSettings
    work: WorkSettings
    #: "module:Class" of the judge.
    judge: str = JUDGE
    #: Judges that divide the cores of its machine, itself included, and which share is its own: what one of them builds
    #: must not disturb what another one times.
    sharing: int = 1
    share: int = 0
    #: Where the near side finds modules; asked after the far side's own places, for judges that are not installed.
    search_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """How a far judge says that it is ready."""

    device: Device
    #: Kernels that it takes at once.
    width: int
    #: Version of kbevolve on the far side, the name of its machine, and the judge's process there.
    version: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One question to a far judge."""

    #: Name of the judge's method: "card", "evaluate", "compete" or "baselines".
    what: str
    problem: Problem
    #: One kernel to evaluate, or those that compete.
    kernels: tuple[Kernel, ...] = ()
    rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to an order; an error travels as a value, so that its class and its one line arrive as they were."""

    found: Any = None
    #: What the judge raised on purpose.
    error: KBEvolveError | None = None
    #: What it did not: the judge is broken, and cannot be believed to work again. One line, "" for none.
    broken: str = ""


class JudgeDied(Exception):
    """A far judge is gone or broken; the message is one line. Its orders have no answer."""


class FarJudge(Protocol):
    """A judge in another process, from the side of who asks it; safe for several threads."""

    introduction: Introduction

    def ask(self, order: Order, *, seconds: float) -> Any:
        """What the judge found; blocks.

        Raises:
            JudgeDied: it died, before or meanwhile, or it gave no answer within so many seconds: then it hangs.
            KBEvolveError: whatever the judge raised on purpose.
        """
        ...

    def close(self) -> None:
        """End it and everything it started; whoever waits for an answer hears that it died. May be called twice."""
        ...


class JudgeHost:
    """Makes one judge and asks it; never raises."""

    def __init__(self, commission: Commission, *, build_elsewhere: "RemoteBuilder | None" = None) -> None:
        """`build_elsewhere`: other hosts' compilers, where there are any."""
        self._commission = commission
        self._build_elsewhere = build_elsewhere
        self._judge: Judge | None = None

    def introduce(self) -> Reply:
        """Find the device and make the judge; an `Introduction`. Imports torch."""
        commission = self._commission
        sys.path.extend(folder for folder in commission.search_path if folder not in sys.path)

        def ready() -> Introduction:
            keep_to_share(commission.share, commission.sharing)
            device = find_device(commission.device)
            self._judge = make_judge(
                device, commission.settings, commission.work, commission.judge, build_elsewhere=self._build_elsewhere
            )
            return Introduction(
                device=device,
                width=self._judge.width,
                version=__version__,
                host=platform.node(),
                pid=os.getpid(),
            )

        return _reply(ready)

    def carry_out(self, order: Order) -> Reply:
        """Ask the judge; may be called from several threads."""
        judge = self._judge
        if judge is None:
            return Reply(broken="it was asked before it was made")
        problem = order.problem

        def found() -> Any:
            match order.what:
                case "card":
                    return judge.card(problem)
                case "evaluate":
                    return judge.evaluate(problem, order.kernels[0])
                case "compete":
                    return judge.compete(problem, order.kernels, rounds=order.rounds)
                case "baselines":
                    return judge.baselines(problem)
                case other:
                    raise EvaluatorError(f"a judge was asked to {other!r}, which none can")

        return _reply(found)

    def close(self) -> None:
        """End the judge's processes. May be called twice."""
        if self._judge is not None:
            self._judge.close()


def make_judge(
    device: Device,
    settings: EvaluationSettings,
    work: WorkSettings,
    judge: str = JUDGE,
    *,
    build_elsewhere: "RemoteBuilder | None" = None,
) -> "Judge":
    """A judge of the class that `judge` names, in this process. Imports torch."""
    from kbevolve.evaluators.judging.judge import width_for

    module, _, name = judge.partition(":")
    kind = getattr(importlib.import_module(module), name)
    far = {"build_elsewhere": build_elsewhere} if build_elsewhere else {}
    made: Judge = kind(device, settings, width=width_for(device, work.width), builders=work.builders, **far)
    return made


def keep_to_share(share: int, sharing: int) -> None:
    """Keep this process, and all that it starts, to one of `sharing` equal shares of the cores; the first is 0.

    Where there are fewer cores than shares, nothing happens.
    """
    cores = sorted(os.sched_getaffinity(0))
    if sharing < 2 or len(cores) < sharing:
        return
    own = cores[len(cores) * share // sharing : len(cores) * (share + 1) // sharing]
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), own)


def sent(order: Order) -> Order:
    """An order as it travels: the problem's text, and of its path the name alone, for the far side has no such file."""
    return replace(order, problem=replace(order.problem, path=Path(order.problem.path.name)))


def read(reply: Reply) -> Any:
    """What a reply brings.

    Raises:
        JudgeDied: the judge broke.
        KBEvolveError: the judge raised it.
    """
    if reply.broken:
        raise JudgeDied(reply.broken)
    if reply.error is not None:
        raise reply.error
    return reply.found


def silent(seconds: float) -> JudgeDied:
    """What is said of a judge that hangs."""
    return JudgeDied(f"it gave no answer within {seconds:.0f} s")


def _reply(ask: Callable[[], Any]) -> Reply:
    try:
        return Reply(found=ask())
    except KBEvolveError as error:
        return Reply(error=error)
    except Exception as error:  # a device that fell off the bus shows itself as any of torch's errors
        words = str(error).strip().splitlines()
        return Reply(broken=f"{type(error).__name__}: {words[0][:300] if words else 'no message'}")
