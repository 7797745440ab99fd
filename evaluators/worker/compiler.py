"""A compiler under guard: ``python -I -S worker/compiler.py '{"file_bytes": …}' c++ -c main.cpp``.

Confines itself as a worker does, then becomes the program that it was told to run.
"""

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

    confine(**json.loads(sys.argv[1]))
    command = sys.argv[2:]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: error: {error.strerror}")
        sys.exit(127)


main()
