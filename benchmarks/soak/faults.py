"""What can go wrong with a child, and the verdicts that are right then.

Every source is a template in which ``@NUMBER@`` makes the child one of a kind and marks its files.
"""

from dataclasses import dataclass
from random import Random

from kbevolve.archive.records import Kernel, Verdict

#: A problem whose evaluation costs a worker's life and hardly anything else.
PROBLEM = '''"""A cheap function of every element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * x


def get_inputs():
    return [torch.randn(64, 96)]


def get_init_inputs():
    return []
'''

_FILE = '''"""Child @NUMBER@."""

import ctypes
import os
import sys
import threading
import time

import torch
from torch import nn
from torch.utils import cpp_extension

NUMBER = "child-@NUMBER@"
{top}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {body}
'''

_RIGHT = "return torch.tanh(x) * x"

#: C++ that is compiled without torch's headers in about a second.
_LIBRARY = """
SOURCE = r'''
#include <math.h>
extern "C" void run(const float* x, float* y, long n) {{
  // @NUMBER@
  for (long i = 0; i < n; i++) y[i] = tanhf(x[i]) * x[i]{semicolon}
}}
'''
folder = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "child_@NUMBER@")
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "child_@NUMBER@.cpp")
with open(path, "w") as file:
    file.write(SOURCE)
cpp_extension.load(
    name="child_@NUMBER@_lib", sources=[path], build_directory=folder, is_python_module=False, with_cuda=False
)
LIBRARY = ctypes.CDLL(os.path.join(folder, "child_@NUMBER@_lib.so"))
LIBRARY.run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
"""
_CALL_LIBRARY = """x = x.contiguous()
        y = torch.empty_like(x)
        LIBRARY.run(x.data_ptr(), y.data_ptr(), x.numel())
        return y"""


def _source(body: str = _RIGHT, top: str = "") -> str:
    return _FILE.replace("{top}", top).replace("{body}", body)


def _library(semicolon: str) -> str:
    return _source(_CALL_LIBRARY, _LIBRARY.format(semicolon=semicolon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a child goes wrong; "honest" is one of them."""

    name: str
    source: str
    #: Verdicts that are right; several where it depends on the moment.
    verdicts: frozenset[Verdict]
    #: How often it is drawn, against the others.
    weight: float = 1.0
    #: What is killed from outside while it is judged: "worker" (its own), "build" (its compiler) or nothing.
    kills: str = ""


def _fault(name: str, source: str, *verdicts: Verdict, weight: float = 1.0, kills: str = "") -> Fault:
    return Fault(name=name, source=source, verdicts=frozenset(verdicts), weight=weight, kills=kills)


FAULTS = (
    _fault("honest", _source(), Verdict.CORRECT, weight=8),
    _fault("wrong", _source("return torch.tanh(x) * x + 0.01"), Verdict.WRONG, weight=2),
    _fault("no Python", _source("return ("), Verdict.REFUSED),
    _fault("fails to import", _source(top="missing_name"), Verdict.BUILD_FAILED),
    _fault("raises", _source("raise ValueError(NUMBER)"), Verdict.CRASHED),
    _fault("reads address zero", _source("return ctypes.string_at(0)"), Verdict.CRASHED),
    _fault("ends itself", _source("os._exit(0)"), Verdict.CRASHED),
    _fault("ends itself on import", _source(top="os._exit(3)"), Verdict.CRASHED),
    _fault("closes everything", _source("os.closerange(3, 256)\n        " + _RIGHT), Verdict.CRASHED),
    _fault("hangs at work", _source("while True:\n            pass"), Verdict.TIMED_OUT, weight=0.7),
    _fault("hangs asleep", _source("time.sleep(1000)"), Verdict.TIMED_OUT, weight=0.7),
    _fault("hangs on import", _source(top="time.sleep(1000)"), Verdict.TIMED_OUT, weight=0.3),
    _fault(
        "takes all memory",
        _source("held = []\n        while True:\n            held.append(torch.empty(1 << 28))"),
        Verdict.CRASHED,
    ),
    _fault(
        "sticky device error",  # as CUDA behaves: after the first failure every call fails
        _source(
            "if self.calls > 1:\n"
            '            raise RuntimeError("CUDA error: an illegal memory access was encountered")\n        ' + _RIGHT
        ),
        Verdict.CRASHED,
    ),
    _fault(
        "flood of output",
        _source(
            "if self.calls == 1:\n            for _ in range(20):\n"
            '                sys.stdout.write("y" * (1 << 20))\n        ' + _RIGHT
        ),
        Verdict.CORRECT,
    ),
    _fault(
        "leaves a helper",
        _source(
            "if self.calls == 1 and os.fork() == 0:\n            time.sleep(1000)\n            os._exit(0)\n        "
            + _RIGHT
        ),
        Verdict.CORRECT,
    ),
    _fault(
        "leaves a helper and ends",
        _source("if os.fork() == 0:\n            time.sleep(1000)\n        os._exit(1)"),
        Verdict.CRASHED,
    ),
    _fault(
        "leaves a thread",
        _source(top="threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"),
        Verdict.CORRECT,
    ),
    _fault(
        "fills its directory",
        _source('with open("large", "wb") as file:\n            file.truncate(1 << 40)\n        ' + _RIGHT),
        Verdict.CRASHED,
    ),
    _fault(
        "leaves litter",
        _source(
            top="for i in range(400):\n"
            '    os.makedirs(f"litter/{i}")\n'
            '    open(f"litter/{i}/file", "w").write(NUMBER)\n'
            'os.chmod("litter", 0)'
        ),
        Verdict.CORRECT,
    ),
    _fault("builds", _library(";"), Verdict.CORRECT, weight=0.5),
    _fault("does not compile", _library(""), Verdict.BUILD_FAILED, weight=0.5),
    _fault("compiler killed", _library(";"), Verdict.BUILD_FAILED, Verdict.CORRECT, weight=0.5, kills="build"),
    _fault(
        "worker killed",
        _source("time.sleep(0.02)\n        " + _RIGHT),
        Verdict.CRASHED,
        Verdict.CORRECT,
        weight=2,
        kills="worker",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakChild:
    """One child of a soak."""

    number: int
    fault: Fault
    kernel: Kernel
    #: Seconds between the start of the process that is to be killed, and its end.
    delay: float


def draw_children(count: int, seed: int) -> list[SoakChild]:
    """The same children, faults and moments for the same seed: each fault once in random order, then at random."""
    rng = Random(seed)
    weights = [fault.weight for fault in FAULTS]
    first = rng.sample(FAULTS, len(FAULTS))
    found = []
    for number in range(count):
        fault = first[number] if number < len(first) else rng.choices(FAULTS, weights)[0]
        source = fault.source.replace("@NUMBER@", f"{seed}_{number}")
        found.append(
            SoakChild(number=number, fault=fault, kernel=Kernel.from_source(source), delay=rng.uniform(0.0, 0.6))
        )
    return found


def rehearsal(count: int) -> list[SoakChild]:
    """So many honest children, none of which is in any soak."""
    return [
        SoakChild(
            number=number,
            fault=FAULTS[0],
            kernel=Kernel.from_source(FAULTS[0].source.replace("@NUMBER@", f"rehearsal_{number}")),
            delay=0.0,
        )
        for number in range(count)
    ]
