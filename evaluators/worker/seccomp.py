"""A filter of system calls (seccomp-bpf), for this process and all it starts, for good.

Every call is allowed except the listed ones: those that reach other processes, the network or the kernel's
configuration, or whose effect outlives the process. Honest kernels, compilers and CUDA's driver need none of them. The
program is classic BPF (Linux Documentation/userspace-api/seccomp_filter.rst): each rule compares the call's number.
"""

import ctypes
import errno
import functools
import os
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

#: AUDIT_ARCH of the machines whose numbers are listed here, and the column of `_NUMBERS`.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def _numbers(table: str) -> dict[str, tuple[int | None, int | None]]:
    """System calls by name: numbers on x86_64 and on aarch64, None (written -) where there is no such call."""
    rows = (entry.split() for entry in table.replace("\n", ",").split(",") if entry.strip())
    return {name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm)) for name, x86, arm in rows}


#: Refused with EPERM whatever the arguments: other processes; the kernel's configuration and its keys; mounts and
#: namespaces; the machine; handles of files; changes of folders, which Landlock does not hide; System V and POSIX
#: objects, which outlive a process; messages with addresses or descriptors, and pages in pipes, whose memory cannot be
#: counted.
_REFUSED = _numbers("""
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, pidfd_getfd 438 438
    pidfd_send_signal 424 424, kcmp 312 272, migrate_pages 256 238
    bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, add_key 248 217, request_key 249 218, keyctl 250 219
    seccomp 317 277
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429
    fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, open_tree_attr 467 467
    unshare 272 97, setns 308 268
    init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294
    reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, syslog 103 116, quotactl 179 60, quotactl_fd 443 443
    settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171, iopl 172 -, ioperm 173 -
    name_to_handle_at 303 264, open_by_handle_at 304 265, fanotify_init 300 262, fanotify_mark 301 263
    inotify_init 253 -, inotify_init1 294 26, inotify_add_watch 254 27
    shmget 29 194, semget 64 190, msgget 68 186, mq_open 240 180
    connect 42 203, sendmsg 46 211, sendmmsg 307 269, vmsplice 278 75
""")
#: As if the kernel had no such calls, so that callers fall back. clone3 takes its flags from memory, which a filter
#: cannot read, and the C library then uses clone; io_uring would carry out calls without this filter.
_UNKNOWN = _numbers("""
    clone3 435 435, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427, memfd_secret 447 447
""")
#: Success without effect. No process leaves the process group, by which all are stopped and killed. Compilers that
#: make their output executable continue, while mode, owner and times of other files, which Landlock does not protect,
#: stay as they are.
_PRETENDED = _numbers("""
    setpgid 109 154, setsid 112 157
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452
    chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, setxattrat 463 463
    removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466, file_setattr 469 469
    utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88
""")
#: Allowed or refused by their arguments.
_DECIDED = _numbers("""
    setpriority 141 140, sched_setparam 142 118, sched_setscheduler 144 119, sched_setattr 314 274
    sched_setaffinity 203 122, ioprio_set 251 30, prlimit64 302 261
    prctl 157 167, clone 56 220, kill 62 129, socket 41 198, socketpair 53 199, sendto 44 206
    tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, fcntl 72 25, ioctl 16 29
""")
_NUMBERS = _REFUSED | _UNKNOWN | _PRETENDED | _DECIDED
#: Name -> the arguments that must be 0, the calling process: its id, and for setpriority "a process" before it (a group
#: or a user would be the other kinds).
_OWN_PROCESS_ONLY = {
    **{"sched_setparam": (0,), "sched_setscheduler": (0,), "sched_setattr": (0,), "prlimit64": (0,)},
    "setpriority": (0, 1),
}
#: "A process", as ioprio_set numbers it.
_IOPRIO_WHO_PROCESS = 1

#: CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET; and CLONE_PARENT, for a child of the judge.
_CLONE_REFUSED = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00008000
#: A thread with its own descriptors, which /proc shows apart from the process's.
_CLONE_FILES, _CLONE_THREAD = 0x00000400, 0x00010000
#: prctl's PR_SET_SECCOMP, PR_SET_TSC and PR_SET_SYSCALL_USER_DISPATCH: they falsify clocks and calls of a process.
_PRCTL_REFUSED = (22, 26, 59)
#: PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER: seem to succeed. A process dies with the judge, shows the
#: judge what it holds, and leaves its orphans to the supervisor.
_PRCTL_PRETENDED = (1, 4, 36)
_AF_UNIX = 1
#: The bit that SOCK_DGRAM and SOCK_RAW have, and SOCK_STREAM and SOCK_SEQPACKET have not.
_DATAGRAM = 2
#: A process id below 0: a group, or every process.
_NEGATIVE = 0x80000000
#: Commands of fcntl that make others wait for this process, or tell it what they do: F_SETLEASE and F_NOTIFY.
_WATCHES = (1024, 1026)
#: Commands that let the system signal another process: F_SETOWN, F_SETSIG and F_SETOWN_EX, FIOSETOWN and SIOCSPGRP.
_OWNERS = {"fcntl": (8, 10, 15), "ioctl": (0x8901, 0x8902)}

_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
#: Instructions: load a word of `struct seccomp_data`, compare (equal; any common bit), return.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
#: Offsets there: number, architecture, low halves of the six arguments.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
#: Set in the numbers of x86_64's second convention, x32.
_X32 = 0x40000000

_SECCOMP_SET_FILTER = 1
#: SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it kernels before 5.16 switch off a part of the process's speculation.
_KEEP_SPECULATION = 4


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction of classic BPF; jumps are relative to the next instruction."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def supported() -> bool:
    """Whether the numbers of this machine's calls are known."""
    return platform.machine() in _MACHINES


def filter_calls(*, sockets: bool, signals: bool) -> bool:
    """Install the filter in this process; whether that worked. `no_new_privs` must be set.

    Without `sockets` only pairs of connected sockets can be made. Without `signals`, for systems where nothing else
    keeps signals from processes outside, this process may signal itself only, and those that it starts none.
    """
    if not supported():
        return False
    code = prepare(sockets=sockets, signals=None if signals else os.getpid())
    _, column = _MACHINES[platform.machine()]
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Program(length=len(code) // 8, steps=ctypes.cast(kept, ctypes.c_void_p).value)
    number = _NUMBERS["seccomp"][column]
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(
        ctypes.c_long(number or 0),
        ctypes.c_uint(_SECCOMP_SET_FILTER),
        ctypes.c_uint(_KEEP_SPECULATION),
        ctypes.byref(program),
    )
    return bool(result == 0)


@functools.cache
def prepare(*, sockets: bool, signals: int | None = None) -> bytes:
    """The filter's program, `signals` the one process that may be signalled; kept for all workers of a fork server."""
    if not supported():
        return b""
    return b"".join(
        struct.pack("HBBI", step.code, step.if_true, step.if_false, step.value)
        for step in _filter(*_MACHINES[platform.machine()], sockets=sockets, signals=signals)
    )


def _filter(architecture: int, column: int, *, sockets: bool, signals: int | None = None) -> list[_Step]:
    def rule(name: str, *body: _Step) -> list[_Step]:
        number = _NUMBERS[name][column]
        return [] if number is None else [_Step(_EQUAL, number, 0, len(body)), *body]

    def each(names: Iterable[str], error: int) -> list[_Step]:
        return [step for name in names for step in rule(name, _fail(error))]

    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, architecture, 1, 0),
        _fail(errno.ENOSYS),
        _Step(_LOAD, _NUMBER),
    ]
    if column == 0:
        steps += [_Step(_ANY_BIT, _X32, 0, 1), _fail(errno.ENOSYS)]
    steps += each(_REFUSED, errno.EPERM) + each(_UNKNOWN, errno.ENOSYS) + each(_PRETENDED, 0)
    for name, own in _OWN_PROCESS_ONLY.items():
        steps += rule(name, *[step for index in own for step in _only(index, 0)], _allow())
    steps += rule("ioprio_set", *_only(0, _IOPRIO_WHO_PROCESS), *_only(1, 0), _allow())
    # OpenMP libraries pin threads by their ids and give up when that fails, so it seems to succeed.
    steps += rule("sched_setaffinity", _argument(0), _Step(_EQUAL, 0, 0, 1), _allow(), _fail(0))
    steps += rule(
        "clone",
        *(_argument(0), _Step(_ANY_BIT, _CLONE_REFUSED, 0, 1), _fail(errno.EPERM)),
        *(_Step(_ANY_BIT, _CLONE_THREAD, 0, 2), _Step(_ANY_BIT, _CLONE_FILES, 1, 0), _fail(errno.EPERM), _allow()),
    )
    options = [(option, errno.EPERM) for option in _PRCTL_REFUSED] + [(option, 0) for option in _PRCTL_PRETENDED]
    decided = [step for option, error in options for step in (_Step(_EQUAL, option, 0, 1), _fail(error))]
    steps += rule("prctl", _argument(0), *decided, _allow())
    commands = {"fcntl": _WATCHES}
    if signals is None:
        steps += rule("kill", _argument(0), _Step(_ANY_BIT, _NEGATIVE, 0, 1), _fail(errno.EPERM), _allow())
    else:
        for name in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
            steps += rule(name, *_only(0, signals), _allow())
        commands = {name: (*_OWNERS[name], *commands.get(name, ())) for name in _OWNERS}
    for name, numbers in commands.items():
        refused = [step for number in numbers for step in (_Step(_EQUAL, number, 0, 1), _fail(errno.EPERM))]
        steps += rule(name, _argument(1), *refused, _allow())
    # CUDA's driver may open Unix sockets for itself. Without connect and addresses they reach no service.
    opened = [_argument(0), _Step(_EQUAL, _AF_UNIX, 0, 1), _allow()] if sockets else []
    steps += rule("socket", *opened, _fail(errno.EACCES))
    # A datagram socket may send to any address, although it is one of a pair.
    steps += rule("socketpair", _argument(1), _Step(_ANY_BIT, _DATAGRAM, 0, 1), _fail(errno.EACCES), _allow())
    steps += rule("sendto", *_only(4, 0, errno.EACCES), *_only(4, 0, errno.EACCES, upper=True), _allow())
    return [*steps, _allow()]


def _argument(index: int, *, upper: bool = False) -> _Step:
    """Load the low half of an argument, which is all that the kernel reads of an `int`, or the upper half."""
    return _Step(_LOAD, _ARGUMENTS + 8 * index + (4 if upper else 0))


def _only(index: int, value: int, error: int = errno.EPERM, *, upper: bool = False) -> list[_Step]:
    """Refuse the call unless this half of an argument has the value."""
    return [_argument(index, upper=upper), _Step(_EQUAL, value, 1, 0), _fail(error)]


def _fail(error: int) -> _Step:
    return _Step(_RETURN, _ERROR | error)


def _allow() -> _Step:
    return _Step(_RETURN, _ALLOW)
