"""The numbers of the filter agree with the kernel's headers, and its program is valid."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbevolve.evaluators.worker import seccomp

HEADERS = {
    0: [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    1: [Path("/usr/include/asm-generic/unistd.h")],
}


@pytest.mark.parametrize("column", HEADERS)
def test_numbers_agree_with_the_kernels_headers(column: int) -> None:
    header = next((path for path in HEADERS[column] if path.exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    known = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    listed = {name: pair[column] for name, pair in seccomp._NUMBERS.items()}
    # A header may be older than the newest calls, but must not disagree; a call that it lacks must be newer, or have
    # no number.
    assert {name: number for name, number in listed.items() if name in known} == {
        name: number for name, number in known.items() if name in listed
    }
    newest = max(known.values())
    assert all(number is None or name in known or number > newest for name, number in listed.items())


@pytest.mark.parametrize("column", [0, 1])
def test_every_listed_call_has_a_rule_and_no_jump_leaves_the_program(column: int) -> None:
    program = seccomp._filter(0xC000003E, column, sockets=True, signals=77)
    compared = {step.value for step in program if step.code == seccomp._EQUAL}
    assert {pair[column] for pair in seccomp._NUMBERS.values() if pair[column] is not None} <= compared
    for position, step in enumerate(program):
        if step.code != seccomp._RETURN:
            assert position + 1 + max(step.if_true, step.if_false) < len(program)


def verdict(program: list[seccomp._Step], data: Mapping[int, int]) -> int:
    """What the program returns, by the rules of classic BPF."""
    position = accumulator = 0
    while True:
        step = program[position]
        position += 1
        if step.code == seccomp._RETURN:
            return step.value
        if step.code == seccomp._LOAD:
            accumulator = data.get(step.value, 0)
        else:
            hit = accumulator == step.value if step.code == seccomp._EQUAL else bool(accumulator & step.value)
            position += step.if_true if hit else step.if_false


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("clone", [0x00010000 | 0x00000100 | 0x00000400], None),  # a thread
        ("clone", [0x00010000 | 0x00000100], 1),  # one with its own descriptors
        ("clone", [0x00000100 | 0x00004000], None),  # vfork
        ("clone", [0x40000000], 1),  # its own network namespace
        ("clone", [0x00008000], 1),  # a child of the judge
        ("clone3", [], 38),
        ("prctl", [15], None),  # a name for a thread
        ("prctl", [1], 0),
        ("prctl", [4, 0], 0),
        ("prctl", [36, 0], 0),
        ("prctl", [22], 1),
        ("socket", [1, 1, 0], 13),
        ("socket", [2, 1, 0], 13),
        ("socket", [10, 2, 0], 13),
        ("socket", [16, 3, 0], 13),
        ("socketpair", [1, 1, 0], None),
        ("socketpair", [1, 5 | 0o2000000, 0], None),
        ("socketpair", [1, 2 | 0o2000000, 0], 13),
        ("socketpair", [1, 3, 0], 13),
        ("sendto", [5, 0x1000, 1, 0, 0], None),
        ("sendto", [5, 0x1000, 1, 0, 0x7F00], 13),
        ("sendto", [5, 0x1000, 1, 0, 0x100000000], 13),
        ("kill", [77], None),
        ("kill", [0], None),
        ("kill", [0xFFFFFFFF], 1),
        ("kill", [0xFFFFFFF0], 1),
        ("sched_setaffinity", [0], None),
        ("sched_setaffinity", [77], 0),
        ("prlimit64", [0], None),
        ("prlimit64", [77], 1),
        ("setpriority", [0, 0], None),
        ("setpriority", [0, 77], 1),
        ("setpriority", [1, 0], 1),
        ("setpriority", [2, 0], 1),
        ("ioprio_set", [1, 0], None),
        ("ioprio_set", [1, 77], 1),
        ("ioprio_set", [3, 0], 1),
        ("setsid", [], 0),
    ],
)
def test_arguments_decide_the_answer(name: str, arguments: list[int], error: int | None) -> None:
    number = seccomp._NUMBERS[name][0]
    assert number is not None
    assert answer(number, arguments) == (seccomp._ALLOW if error is None else seccomp._ERROR | error)


def answer(number: int, arguments: list[int], *, sockets: bool = False) -> int:
    """The filter's answer to a call with arguments of 64 bits."""
    data = {0: number, 4: 0xC000003E}
    for index, value in enumerate(arguments):
        data |= {16 + 8 * index: value & 0xFFFFFFFF, 20 + 8 * index: value >> 32}
    return verdict(seccomp._filter(0xC000003E, 0, sockets=sockets), data)


def test_where_nothing_else_keeps_signals_inside_a_process_signals_itself_only() -> None:
    code = (
        "import ctypes, os, signal\n"
        "from kbevolve.evaluators.worker.seccomp import filter_calls\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "assert filter_calls(sockets=False, signals=False)\n"
        "for pid in (os.getppid(), 0, -1):\n"
        "    try:\n        os.kill(pid, 0)\n"
        "    except PermissionError:\n        print('refused')\n"
        "os.kill(os.getpid(), 0)\n"
        "import fcntl\n"
        "fcntl.fcntl(0, fcntl.F_GETFL)\n"
        "try:\n    fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())\n"
        "except PermissionError:\n    print('refused')\n"
        "try:\n    fcntl.fcntl(os.open('/', 0), fcntl.F_NOTIFY, fcntl.DN_CREATE)\n"
        "except PermissionError:\n    print('refused')\n"
        "if ctypes.CDLL(None).syscall(234, os.getppid(), os.getppid(), 0) < 0: print('refused', flush=True)\n"
        "os.abort()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == 6 * ["refused"], done.stderr
    assert done.returncode == -signal.SIGABRT


def test_cudas_driver_may_make_unix_sockets_that_reach_nothing() -> None:
    assert answer(41, [1, 5, 0], sockets=True) == seccomp._ALLOW
    for number, arguments in ((41, [2, 1, 0]), (41, [16, 3, 0]), (42, []), (44, [5, 0, 1, 0, 1]), (46, []), (307, [])):
        assert answer(number, arguments, sockets=True) & 0xFFFF0000 == seccomp._ERROR


def test_calls_of_other_conventions_are_unknown() -> None:
    program = seccomp._filter(0xC000003E, 0, sockets=False)
    assert verdict(program, {0: 1, 4: 0x40000003}) == seccomp._ERROR | 38  # 32-bit calls
    assert verdict(program, {0: 0x40000001, 4: 0xC000003E}) == seccomp._ERROR | 38
    assert verdict(program, {0: 1, 4: 0xC000003E}) == seccomp._ALLOW
    assert verdict(program, {0: 42, 4: 0xC000003E}) == seccomp._ERROR | 1  # connect
