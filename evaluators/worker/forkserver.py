"""The fork server: imports once what all workers need, and forks a process for each worker.

Importing torch takes a second or more of a core, a fork takes milliseconds. This process has one thread and no CUDA
context, and never runs a line of a candidate. A forked worker confines itself before anything else, exactly as a
started one.
"""

import contextlib
import gc
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbevolve.evaluators.worker import seccomp
from kbevolve.evaluators.worker.channel import Channel, Message
from kbevolve.evaluators.worker.supervisor import adopt_orphans, die_with, kill_descendants

#: Seconds until orphans of an ended worker are gone. It takes milliseconds.
_ORPHAN_SECONDS = 5.0


def serve_forks(socket_fd: int, *, device: str, inductor: bool) -> dict[str, Any]:
    """Serve until the judge closes the connection; returns in each forked worker, with its program's arguments.

    The request ``{"fork": {"arguments": …, "environment": …, "directory": …}}`` has two descriptors, the worker's
    connection and its output; the answer is ``{"forked": pid}`` or ``{"failed": why}``. The request ``{"wait": pid}``
    is answered by ``{"code": n}``, the exit code, or minus the signal that ended the worker. Until then an ended
    worker stays a zombie, so no other process gets its id. Before the answer, what the worker left is killed.

    Args:
        socket_fd: the connection to the judge.
        device: "cpu" or "cuda:0".
        inductor: whether its workers have Inductor. They start without it after half the time.
    """
    adopt_orphans()
    _import_all(device)
    if inductor:
        with contextlib.suppress(Exception):  # then each of its kernels imports it, or fails with this message
            _import_inductor()
    seccomp.prepare(sockets=device != "cpu")
    _share_memory()
    connection = socket.socket(fileno=socket_fd)
    channel = Channel(connection)
    channel.send({"ok": True})
    workers: set[int] = set()
    while True:
        try:
            request, descriptors = channel.receive()
        except EOFError:
            os._exit(0)
        if "wait" in request:
            code = _exit_code(request["wait"])
            workers.discard(request["wait"])
            kill_descendants(workers, seconds=_ORPHAN_SECONDS)
            channel.send({"code": code})
            continue
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # the server and its other workers continue
            answer: Message = {"failed": str(error)}
        else:
            if not pid:
                connection.close()
                return _begin(request["fork"], descriptors, server)
            workers.add(pid)
            answer = {"forked": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(answer)


@contextlib.contextmanager
def _driver_uncalled(device: str) -> Iterator[None]:
    """For imports: none may call the CUDA driver, which does not survive a fork.

    Torch's extension builder asks for a GPU on import, to warn about a toolkit without one.
    """
    import torch

    is_available = torch.cuda.is_available
    torch.cuda.is_available = lambda: device != "cpu"
    try:
        yield
    finally:
        torch.cuda.is_available = is_available


def _share_memory() -> None:
    """Let the collector leave what is there alone, so that its memory stays shared by all workers."""
    gc.collect()
    gc.freeze()


def _import_all(device: str) -> None:
    """Import what most workers need."""
    with _driver_uncalled(device):
        import torch.utils.cpp_extension  # noqa: F401

        import kbevolve.evaluators.worker.service  # noqa: F401

        if device != "cpu":
            with contextlib.suppress(Exception):  # then its kernels fail in their own process, with this message
                import triton.language  # noqa: F401
                from triton.backends.nvidia.driver import library_dirs

                library_dirs()  # asks ldconfig where the driver is; all forked workers know the answer


def _import_inductor() -> None:
    """Import what files from torch.compile need, and hash Triton: seconds that each of their workers would take."""
    os.environ["TORCH_WARM_POOL"] = "0"  # or it starts processes that compile
    try:
        with _driver_uncalled("cuda"):
            import torch._inductor.async_compile
            import torch._inductor.runtime.triton_heuristics
            import torch._inductor.select_algorithm  # noqa: F401
            from triton.runtime.cache import triton_key

            triton_key()  # a hash of Triton's own 400 MB, which is part of the key of each kernel that it compiles
    finally:
        del os.environ["TORCH_WARM_POOL"]


def _begin(worker: Message, descriptors: list[int], server: int) -> dict[str, Any]:
    """In the new process: its own session, environment, directory and descriptors."""
    die_with(server)
    connection, output = descriptors
    os.set_inheritable(connection, False)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(worker["environment"])
    os.chdir(Path(worker["directory"]) / "work")
    tempfile.tempdir = None  # the server's, if an imported module asked for one
    lead_session(connection)
    arguments: dict[str, Any] = json.loads(worker["arguments"])
    return arguments | {"socket": connection}


def lead_session(connection: int) -> None:
    """Begin a worker's session and process group, by which the judge stops and kills it, and adopt its orphans."""
    os.setsid()
    adopt_orphans()
    with socket.socket(fileno=os.dup(connection)) as introduced:
        introduced.send(b"!")  # from its sender the judge learns this process's id in its own namespace


def _exit_code(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0
