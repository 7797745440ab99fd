"""The worker program: ``python -P worker/__main__.py '{"socket": 3, "device": "cuda:0", …}'``.

The order matters: limits first, then torch, then the word "ready", and only then a candidate.
"""

import json
import sys
from pathlib import Path
from types import ModuleType


def _make_importable(directory: Path) -> None:
    """Lets this folder's files import one another under their full names without the rest of kbevolve."""
    for name in ("kbevolve", "kbevolve.evaluators", "kbevolve.evaluators.worker"):
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    package.__path__ = [str(directory)]


def main() -> None:
    """Confine this process, warm it up and serve until the judge hangs up.

    Without a socket the level of confinement that was reached is printed, and that is all. With the orders of a nursery
    all this happens in each of the processes that it bears.
    """
    _make_importable(Path(__file__).resolve().parent)
    orders = json.loads(sys.argv[1])
    if "fork_server" in orders:
        from kbevolve.evaluators.worker.forkserver import tend

        orders = tend(**orders["fork_server"])

    from kbevolve.evaluators.worker.confinement import confine

    level = confine(**orders["confinement"])
    if orders["socket"] is None:
        print(level)
        return

    from kbevolve.evaluators.worker.service import serve

    serve(socket_fd=orders["socket"], device=orders["device"], threads=orders["threads"], sandbox=level)


main()
