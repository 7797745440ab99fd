"""Bears workers: imports once what all of them need, and forks a process for each that is asked for.

Importing torch takes a second or more of a processor; a fork takes milliseconds. This process has one thread and no
CUDA context, and never runs a line of a candidate. What it bears confines itself before it does anything else, exactly
as a worker does that was started on its own.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

from kbevolve.evaluators.worker.channel import Channel, Message

_PR_SET_PDEATHSIG = 1


def tend(socket_fd: int, *, device: str, parent: int | None) -> dict[str, Any]:
    """Serve until the judge hangs up, and end; returns in each process that is born, with the orders for that worker.

    Requests are ``{"bear": {"orders": …, "environment": …, "directory": …}}`` with two descriptors, the worker's
    connection and where its output goes, answered by ``{"born": pid}`` or ``{"failed": why}``; and ``{"reap": pid}``,
    answered by ``{"code": n}``, its exit code, or minus the signal that ended it. Until it is asked for, the ended
    process stays a zombie, so that its number is nobody else's.

    Args:
        socket_fd: the connection to the judge.
        device: "cpu" or "cuda:0".
        parent: process id of the judge; None where that is out of sight in another namespace.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(0)
    _import_all(device)
    gc.collect()
    gc.freeze()  # objects that no collection touches stay in memory that all processes share
    connection = socket.socket(fileno=socket_fd)
    channel = Channel(connection)
    channel.send({"ok": True})
    while True:
        try:
            request, descriptors = channel.receive()
        except EOFError:
            os._exit(0)
        if "reap" in request:
            channel.send({"code": _reap(request["reap"])})
            continue
        orders = request["bear"]
        nursery = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # no reason to end, and all the others with it
            answer: Message = {"failed": str(error)}
        else:
            if not pid:
                connection.close()
                return _begin(orders, descriptors, nursery)
            answer = {"born": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(answer)


def _import_all(device: str) -> None:
    """What most workers need. Nothing of it may ask the CUDA driver anything: that does not survive a fork."""
    import torch

    asks = torch.cuda.is_available
    # torch's builder asks on its import, to say that there is a toolkit and no GPU.
    torch.cuda.is_available = lambda: device != "cpu"
    try:
        import torch.utils.cpp_extension

        import kbevolve.evaluators.worker.service  # noqa: F401

        if device != "cpu":
            with contextlib.suppress(Exception):  # then its kernels fail in their own process, with this message
                import triton.language  # noqa: F401
                from triton.backends.nvidia.driver import library_dirs

                library_dirs()  # asks ldconfig where the driver is, and remembers it in all that are born
    finally:
        torch.cuda.is_available = asks


def _begin(request: Message, descriptors: list[int], nursery: int) -> dict[str, Any]:
    """In the new process: a session of its own, its own environment, directory and descriptors."""
    os.setsid()
    connection, output = descriptors
    os.set_inheritable(connection, False)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(Path(request["directory"]) / "work")
    tempfile.tempdir = None  # the nursery's, if anything that it imported asked for one
    # The judge learns the number that this process has in the judge's own namespace from the sender of one byte.
    socket.socket(fileno=os.dup(connection)).send(b"!")
    orders: dict[str, Any] = json.loads(request["orders"])
    orders["socket"] = connection
    orders["confinement"]["parent"] = nursery
    return orders


def _reap(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0
