"""A filter of system calls (seccomp-bpf), for this process and all it starts, for good.

Everything is allowed but what is listed: what reaches other processes, the network, the kernel's configuration, or
what would outlive the process. Honest kernels, compilers and CUDA's driver need none of it. The program is classic BPF
(Linux Documentation/userspace-api/seccomp_filter.rst), written out by hand: each rule is one comparison of the number
and what follows from it.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

#: AUDIT_ARCH of the machines whose numbers are listed here, and the column of `_NUMBERS`.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

#: System calls by name: numbers on x86_64 and on aarch64, None where there is no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # Other processes: their memory, their descriptors.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # Other processes: their share of the machine.
    "migrate_pages": (256, 238),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "prlimit64": (302, 261),
    # The kernel's side doors.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "seccomp": (317, 277),
    "prctl": (157, 167),
    # Mounts and namespaces.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    # The machine.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    # The network, and what outlives a process.
    "socket": (41, 198),
    "connect": (42, 203),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # Groups of processes, and attributes of files, which Landlock leaves alone.
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}

#: Refused with EPERM whatever the arguments.
_REFUSED = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "migrate_pages"),
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "seccomp"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    *(
        "mount_setattr",
        "open_tree_attr",
        "unshare",
        "setns",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
    ),
    *("kexec_file_load", "reboot", "swapon", "swapoff", "acct", "syslog", "quotactl", "quotactl_fd", "settimeofday"),
    *("clock_settime", "clock_adjtime", "adjtimex", "iopl", "ioperm", "name_to_handle_at", "open_by_handle_at"),
    *("fanotify_init", "shmget", "semget", "msgget", "mq_open"),
)
#: As if the kernel had never heard of them: callers fall back. clone3 takes its flags from memory, where a filter
#: cannot look, and the C library then uses clone; io_uring would carry out calls past this filter.
_UNKNOWN = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
#: Success without effect. Nothing leaves the process group, by which all is stopped and killed; and compilers that
#: make their output executable go on, while the mode, owner and times of other files stay as they are.
_PRETENDED = (
    *("setpgid", "setsid", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    *("removexattrat", "file_setattr", "utime", "utimes", "futimesat", "utimensat"),
)
#: Name -> which argument names the process that is meant: only 0, oneself, is allowed.
_ONESELF_ONLY = {
    **{"sched_setparam": 0, "sched_setscheduler": 0, "sched_setattr": 0, "prlimit64": 0},
    **{"setpriority": 1, "ioprio_set": 1},
}

#: CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET; and CLONE_PARENT, a child of the judge's.
_CLONE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00008000
#: prctl's PR_SET_SECCOMP, PR_SET_TSC and PR_SET_SYSCALL_USER_DISPATCH: clocks and calls that lie to their own process.
_PRCTL_REFUSED = (22, 26, 59)
_PRCTL_DEATH_SIGNAL = 1
_AF_UNIX, _AF_NETLINK, _NETLINK_ROUTE = 1, 16, 0

_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
#: Instructions: load a word of the call's description, compare (equal; any bit in common), return.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
#: Offsets in `struct seccomp_data`: number, architecture, low halves of the six arguments.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
#: Set in the numbers of x86_64's second calling convention (x32).
_X32 = 0x40000000

_SECCOMP_SET_FILTER = 1
#: SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it kernels before 5.16 switch off a part of speculation for the process.
_KEEP_SPECULATION = 4


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction of classic BPF; jumps are relative to the next one."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def supported() -> bool:
    """Whether this machine's numbers are known here."""
    return platform.machine() in _MACHINES


def filter_calls() -> bool:
    """Put the filter on this process; whether it is on. `no_new_privs` must be set."""
    if not supported():
        return False
    architecture, column = _MACHINES[platform.machine()]
    code = b"".join(
        struct.pack("HBBI", step.code, step.if_true, step.if_false, step.value)
        for step in _filter(architecture, column)
    )
    kept = ctypes.create_string_buffer(code, len(code))
    program = _Program(length=len(code) // 8, steps=ctypes.cast(kept, ctypes.c_void_p).value)
    number = _NUMBERS["seccomp"][column]
    libc = ctypes.CDLL(None, use_errno=True)
    put = libc.syscall(
        ctypes.c_long(number or 0),
        ctypes.c_uint(_SECCOMP_SET_FILTER),
        ctypes.c_uint(_KEEP_SPECULATION),
        ctypes.byref(program),
    )
    return bool(put == 0)


def _filter(architecture: int, column: int) -> list[_Step]:
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
    for name, argument in _ONESELF_ONLY.items():
        steps += rule(name, _argument(argument), _Step(_EQUAL, 0, 0, 1), _allow(), _fail(errno.EPERM))
    # OpenMP libraries pin threads by their numbers and give up when that fails: it seems to work and does nothing.
    steps += rule("sched_setaffinity", _argument(0), _Step(_EQUAL, 0, 0, 1), _allow(), _fail(0))
    steps += rule("clone", _argument(0), _Step(_ANY_BIT, _CLONE_FLAGS, 0, 1), _fail(errno.EPERM), _allow())
    refusals = [step for option in _PRCTL_REFUSED for step in (_Step(_EQUAL, option, 0, 1), _fail(errno.EPERM))]
    keep_dying = [_Step(_EQUAL, _PRCTL_DEATH_SIGNAL, 0, 1), _fail(0)]  # with the judge, whatever it asks for
    steps += rule("prctl", _argument(0), *refusals, *keep_dying, _allow())
    unix = [_Step(_EQUAL, _AF_UNIX, 0, 1), _allow()]
    # Names of network interfaces, which libraries look up; changing anything takes a privilege that is gone.
    route = [_Step(_EQUAL, _AF_NETLINK, 0, 3), _argument(2), _Step(_EQUAL, _NETLINK_ROUTE, 0, 1), _allow()]
    steps += rule("socket", _argument(0), *unix, *route, _fail(errno.EACCES))
    # Services of the machine listen on Unix sockets.
    steps += rule("connect", _fail(errno.EACCES))
    return [*steps, _allow()]


def _argument(index: int) -> _Step:
    """Load the low half of an argument: all that the kernel reads of an `int`."""
    return _Step(_LOAD, _ARGUMENTS + 8 * index)


def _fail(error: int) -> _Step:
    return _Step(_RETURN, _ERROR | error)


def _allow() -> _Step:
    return _Step(_RETURN, _ALLOW)
