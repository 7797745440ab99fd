"""A judge that runs where its device is and is asked from another process: the far side of a fleet.

The same host runs in a process of this machine (`judge_process.py`) and in an actor of a cluster (`actors.py`). Both
ends are this program, so frozen records of plain values cross pickled. No key and no path crosses, and unpickling runs
no candidate: a kernel travels as text, and only the judge's workers run it.
"""

import contextlib
import importlib
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kbevolve import __version__
from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import KBEvolveError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import Device, find_device

if TYPE_CHECKING:
    from kbevolve.evaluators.judging.judge import Judge
    from kbevolve.evaluators.sandbox.forkserver import ForkServer

#: The class of the judges, as "module:Class". Tests and simulations name another one with the same methods.
JUDGE = "kbevolve.evaluators.judging.judge:Judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSpec:
    """What a remote judge is made from; the same for every judge of a run but for its device."""

    #: Name of the device on the far side, e.g. "cuda:0": a remote judge sees one GPU and no other.
    device: str
    settings: EvaluationSettings
    work: WorkSettings
    #: "module:Class" of the judge.
    judge: str = JUDGE
    #: Number of judges that divide the cores of the machine, and the index of this judge's share: the builds of one
    #: judge must not disturb the timing of another.
    sharing: int = 1
    share: int = 0
    #: Module search path of the near side, appended on the far side, for judges that are not installed there.
    search_path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInfo:
    """What a remote judge reports when it is ready."""

    device: Device
    #: Kernels that it evaluates at once.
    width: int
    #: Version of kbevolve on the far side, the name of its machine, and the judge's process id there.
    version: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """One call of a method of a remote judge."""

    method: Literal["card", "evaluate", "compete", "baselines"]
    problem: Problem
    #: One kernel to evaluate, or those that compete.
    kernels: tuple[Kernel, ...] = ()
    rounds: int = 0

    def call(self, judge: "Judge") -> Any:
        """Call the method."""
        if self.method == "compete":
            return judge.compete(self.problem, self.kernels, rounds=self.rounds)
        return getattr(judge, self.method)(self.problem, *self.kernels)

    def portable(self) -> "JudgeRequest":
        """The request to be sent: of the problem's path the name only, because the far side has no such file."""
        return replace(self, problem=replace(self.problem, path=Path(self.problem.path.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """The reply to a request. An error travels as a value, so that its class and message are kept."""

    value: Any = None
    #: What the judge raised on purpose.
    error: KBEvolveError | None = None
    #: Any other exception in one line: the judge is broken and must be replaced. "" for none.
    broken: str = ""

    @classmethod
    def of(cls, call: Callable[[], Any]) -> "JudgeReply":
        """What a call returns or raises."""
        try:
            return cls(value=call())
        except KBEvolveError as error:
            return cls(error=error)
        except Exception as error:  # a device that failed shows itself as any of torch's errors
            lines = str(error).strip().splitlines() or ["no message"]
            return cls(broken=f"{type(error).__name__}: {lines[0][:300]}")

    def result(self) -> Any:
        """The value, or what the judge raised; JudgeDied when it broke."""
        if self.broken:
            raise JudgeDied(self.broken)
        if self.error is not None:
            raise self.error
        return self.value


class JudgeDied(Exception):
    """A remote judge is gone or broken, and its requests have no reply; the message is one line."""


class RemoteJudge(Protocol):
    """A judge in another process, from the caller's side; safe for several threads."""

    info: JudgeInfo

    def ask(self, request: JudgeRequest, *, seconds: float) -> Any:
        """The judge's result; blocks.

        Raises:
            JudgeDied: it died, before or meanwhile, or it gave no answer within so many seconds: then it hangs.
            KBEvolveError: the judge raised it on purpose.
        """
        ...

    def close(self) -> None:
        """End it and everything it started; requests under way raise `JudgeDied`. May be called twice."""
        ...


class JudgeHost:
    """Makes one judge and calls it; never raises."""

    def __init__(self, spec: JudgeSpec) -> None:
        self._spec = spec
        self._judge: Judge | None = None

    def start(self) -> JudgeReply:
        """Find the device and make the judge; the reply holds a `JudgeInfo`. Imports torch."""
        return JudgeReply.of(self._start)

    def _start(self) -> JudgeInfo:
        spec = self._spec
        sys.path.extend(folder for folder in spec.search_path if folder not in sys.path)
        pin_to_share(spec.share, spec.sharing)
        device = find_device(spec.device)
        self._judge = make_judge(device, spec.settings, spec.work, spec.judge)
        return JudgeInfo(
            device=device, width=self._judge.width, version=__version__, host=platform.node(), pid=os.getpid()
        )

    def handle(self, request: JudgeRequest) -> JudgeReply:
        """Call the judge; may be called from several threads."""
        judge = self._judge
        if judge is None:
            return JudgeReply(broken="it was asked before it was started")
        return JudgeReply.of(lambda: request.call(judge))

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
    fork_server: "ForkServer | None" = None,
) -> "Judge":
    """A judge of the class that `judge` names, in this process. Imports torch.

    `fork_server` was opened early (`launch.open_fork_server_early`), and is closed with the judge.
    """
    from kbevolve.evaluators.judging.judge import width_for

    module, _, name = judge.partition(":")
    kind = getattr(importlib.import_module(module), name)
    early = {} if fork_server is None else {"fork_server": fork_server}
    made: Judge = kind(device, settings, width=width_for(device, work.width), builders=work.builders, **early)
    return made


def pin_to_share(share: int, sharing: int) -> None:
    """Pin this process, and all that it starts, to one of `sharing` equal shares of the cores; the first is 0.

    With fewer cores than shares, nothing happens.
    """
    cores = sorted(os.sched_getaffinity(0))
    if sharing < 2 or len(cores) < sharing:
        return
    own = cores[len(cores) * share // sharing : len(cores) * (share + 1) // sharing]
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), own)
