"""The program of every confined process: a worker, a fork server of workers, or a compiler.

``python -P worker/__main__.py '{"judge": 4, "socket": 3, "device": "cuda:0", …}'`` forks below a supervisor, confines
itself, imports torch, and only then reads a candidate. ``python -I -S worker/__main__.py '{"judge": 4, "nice": 10,
"confinement": …}' c++ -c main.cpp`` confines itself in the same way and becomes the compiler. A fork with
``"compiles": true`` compiles one Triton kernel.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn


def _make_importable(directory: Path) -> None:
    """Lets this folder's files import one another by their full names without the rest of kbevolve."""
    for name in ("kbevolve", "kbevolve.evaluators", "kbevolve.evaluators.worker"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    package.__path__ = [str(directory)]


def main() -> None:
    """Confine this process, warm it up, and serve until the judge closes the connection.

    A fork server returns here in each process that it forks.
    """
    _make_importable(Path(__file__).resolve().parent)
    from kbevolve.evaluators.worker.supervisor import supervise

    arguments = json.loads(sys.argv[1])
    supervise(arguments["judge"])
    if "fork_server" in arguments:
        from kbevolve.evaluators.worker.forkserver import serve_forks

        arguments = serve_forks(**arguments["fork_server"])
    elif "socket" in arguments:
        from kbevolve.evaluators.worker.forkserver import lead_session

        lead_session(arguments["socket"])

    from kbevolve.evaluators.worker.confinement import confine

    if "nice" in arguments:
        _yield_to_others(arguments["nice"])
    level = confine(**arguments["confinement"])
    if command := sys.argv[2:]:
        _become(command)
    if "compiles" in arguments:
        from kbevolve.evaluators.worker.triton_compiler import serve_compiler

        serve_compiler(socket_fd=arguments["socket"], sandbox=level)
        return
    from kbevolve.evaluators.worker.service import serve

    serve(socket_fd=arguments["socket"], device=arguments["device"], threads=arguments["threads"], sandbox=level)


def _yield_to_others(nice: int) -> None:
    """Take a core only where no other process needs it; 0 for an equal share."""
    os.nice(nice)
    if nice:
        # Linux shares cores by session first (sched(7), "The autogroup feature"), and a compiler has its own session.
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
            group.write(str(nice))


def _become(command: list[Any]) -> NoReturn:
    """Replace this process by the command."""
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: error: {error.strerror}")
        sys.exit(127)


main()
