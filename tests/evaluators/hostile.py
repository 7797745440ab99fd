"""What a hostile candidate would do to the machine around it: sources for an "import" request, and for plain Python.

Each source succeeds silently where nothing stops it, and raises where something does. `{name}` stands for a place
that the test prepares.
"""

#: Name -> source. Names of places: `secret` (a file of the user's), `folder` (one to write in), `checkout`, `parent`
#: (the judge's process id), `port` (a listening TCP server), `socket` (a listening Unix socket's path), `abstract` (the
#: name of a listening abstract Unix socket), `datagrams` (the path of a Unix socket that takes datagrams), `private` (a
#: file of the system's administrator).
SNOOPING = {
    "reads-a-file": "open({secret!r}).read()",
    "reads-the-checkout": "open({checkout!r} + '/README.md').read()",
    "reads-the-judge": "open({checkout!r} + '/evaluators/judging/judge.py').read()",
    "lists-the-home": "import os; os.listdir(os.path.dirname({secret!r}))",
    "reads-passwords": "open({private!r}).read()",
    "reads-a-command-line": "open('/proc/{parent}/cmdline').read()",
    "reads-a-state": "open('/proc/{parent}/stat').read()",
    "reads-a-threads-state": "open('/proc/{parent}/task/{parent}/stat').read()",
    "writes-a-file": "open({folder!r} + '/written', 'w').write('x')",
    "overwrites-a-file": "open({secret!r}, 'r+').write('x')",
    "truncates-a-file": "import os; os.truncate({secret!r}, 0)",
    "deletes-a-file": "import os; os.remove({secret!r})",
    "links-a-file": "import os; os.link({secret!r}, 'link'); open('link').read()",
    "leaves-a-note": "open('/dev/shm/kbevolve-test-note', 'w').write('x')",
    "reads-its-environment": "open('/proc/{parent}/environ').read()",
    "reads-its-memory": "open('/proc/{parent}/mem', 'rb')",
    "reads-its-descriptors": "import os; os.readlink('/proc/{parent}/fd/1')",
    "signals-the-judge": "import os; os.kill({parent}, 0)",
    "slows-the-judge": "import os; os.setpriority(0, {parent}, os.getpriority(0, {parent}))",
    "slows-its-group": "import os; os.setpriority(os.PRIO_PGRP, 0, os.getpriority(os.PRIO_PGRP, 0))",
    "connects-by-tcp": "import socket; socket.create_connection(('127.0.0.1', {port}), 2).close()",
    "sends-by-udp": (
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))"
    ),
    "connects-to-a-service": "import socket; socket.socket(socket.AF_UNIX).connect({socket!r})",
    "connects-to-a-hidden-service": "import socket; socket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r})",
    "sends-to-a-service": "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', {datagrams!r})",
    "sends-by-one-of-a-pair": (
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', {datagrams!r})"
    ),
    "sends-a-message": (
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendmsg([b'x'], [], 0, {datagrams!r})"
    ),
    "sends-a-descriptor": "import socket; pair = socket.socketpair(); socket.send_fds(pair[0], [b'x'], [0])",
}

#: Calls of the kernel that an ordinary process may make; each returns 0 or more where nothing stops it.
SYSTEM_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if {call} < 0:
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
SYSTEM_CALLS = {
    "io_uring": "libc.syscall(425, 1, (ctypes.c_byte * 256)())",
    "add_key": "libc.syscall(248, b'user', b'kbevolve', b'x', 1, -3)",
    "shmget": "libc.shmget(0, 4096, 0o600)",
    "inotify_init1": "libc.inotify_init1(0)",
    "ioprio_set": "libc.syscall(251, 2, 0, 0)",
    "vmsplice": "libc.syscall(278, os.pipe()[1], (ctypes.c_size_t * 2)(*([id(os)] + [8])), 1, 0)",
    "name_to_handle_at": "libc.name_to_handle_at(-100, b'/', (ctypes.c_int * 64)(128), (ctypes.c_int * 1)(), 0)",
}

FORK_BOMB = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(100)
time.sleep(100)
"""

MEMORY_BOMB = """
import torch
held = [torch.empty(1 << 30, dtype=torch.uint8) for _ in range({gigabytes})]
"""

FLOOD = """
import os
for _ in range(200):
    os.write(1, bytes(1 << 20))
"""

#: A helper that leaves its parent, its session and its group as far as it can.
SURVIVOR = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setpgid(0, 0)
        time.sleep(100)
    os._exit(0)
os.wait()
"""

SPINNER = """
import os
if os.fork() == 0:
    while True:
        pass
"""

#: A tree that Python's own remover does not get through, and a folder that no user may enter.
TANGLE = """
import os
place = os.getcwd()
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
os.chdir(place)
os.mkdir("closed", 0)
os.mkdir("closed-too", 0o100)
"""
