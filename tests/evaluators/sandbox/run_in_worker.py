"""Lets a worker run a few lines as a candidate would."""

from kbevolve.evaluators.sandbox.worker import Worker

#: A kernel that does nothing.
KERNEL = "\nclass ModelNew:\n    pass\n"


def run_in_worker(worker: Worker, body: str, seconds: float = 10.0) -> str:
    """All that the worker printed."""
    reply = worker.ask({"request": "import", "source": f"{body}{KERNEL}"}, seconds=seconds)
    assert reply["ok"], reply
    worker.ask({"request": "nothing"}, seconds=seconds)
    return worker.printed.strip()
