"""A compiler under guard: ``python -I -S worker/compiler.py '{"nice": 10, "confinement": …}' c++ -c main.cpp``.

Confines itself as a worker does, then becomes the program that it was told to run.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Confine this process and replace it by the command."""
    for name in ("kbevolve", "kbevolve.evaluators", "kbevolve.evaluators.worker"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    package.__path__ = [str(Path(__file__).resolve().parent)]
    from kbevolve.evaluators.worker.confinement import confine

    orders = json.loads(sys.argv[1])
    _yield_to_others(orders["nice"])
    confine(**orders["confinement"])
    command = sys.argv[2:]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: error: {error.strerror}")
        sys.exit(127)


def _yield_to_others(nice: int) -> None:
    """Take a core only where nobody else wants it much; 0 for an equal of all."""
    os.nice(nice)
    if nice:
        # Linux shares cores by session first (sched(7), "The autogroup feature"), and a compiler has its own.
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:
            group.write(str(nice))


main()
