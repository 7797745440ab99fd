"""A candidate that sends in its worker's name is ended, and what it sends is bounded."""

import os
import threading
import time
from pathlib import Path

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.rejection import Rejection
from tests.evaluators.builds.pooled import WorkerWithPool
from tests.evaluators.builds.sources import LIBRARY


@pytest.mark.parametrize(
    "messages",
    [
        '{"phase": "loading"}',
        '{"phase": "building", "build": null}{"phase": "building", "build": null}',
    ],
    ids=["loading before building", "building twice"],
)
@pytest.mark.slow
def test_forged_phases_end_the_worker(place: WorkerWithPool, messages: str) -> None:
    """The candidate writes messages in its worker's name."""
    parts = messages.replace("}{", "}\n{").splitlines()
    forged = (
        "import os, time\n"
        "for descriptor in map(int, os.listdir('/proc/self/fd')):\n"
        "    if os.path.exists(f'/proc/self/fd/{descriptor}') or True:\n"
        "        try: name = os.readlink(f'/proc/self/fd/{descriptor}')\n"
        "        except OSError: continue\n"
        "        if name.startswith('socket:'):\n"
        f"            for part in {parts!r}:\n"
        "                os.write(descriptor, len(part).to_bytes(4, 'big') + part.encode())\n"
        "time.sleep(20)\n"
    )
    with pytest.raises(Rejection) as ended:
        place.load(forged)
    assert ended.value.verdict is Verdict.CRASHED


#: The candidate asks for a build in its worker's name, and goes on sending instead of waiting.
FLOOD = r"""
import json, os, time
(connection,) = [
    int(name) for name in os.listdir("/proc/self/fd")
    if os.path.exists(f"/proc/self/fd/{name}") and os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
]
def send(message):
    os.write(connection, len(message).to_bytes(4, "big") + message)
def ask(**more):
    tree = {"phase": "building", "build": {"name": "flood", "sources": [["main.cpp", SOURCE]]} | more}
    send(json.dumps(tree).encode())
"""


FLOODS = {
    "bytes while it builds": "ask()\nfor _ in range(1500):\n    os.write(connection, bytes(1 << 20))",
    "messages while it builds": 'ask()\nfor _ in range(3_000_000):\n    send(b\'{"phase": "building"}\')',
    "many builds": "for _ in range(1000):\n    ask()\n    os.read(connection, 1 << 20)",
    "an endless message": "os.write(connection, bytes([255] * 4))\nwhile True: os.write(connection, bytes(1 << 20))",
    "many small values": "send(b'{\"phase\": [' + b'{},' * 2_600_000 + b'{}]}')\ntime.sleep(20)",
    "unused fields": "for _ in range(40):\n    ask(junk=[[]] * 400_000)\n    os.read(connection, 1 << 20)",
    "output while it builds": "ask()\nfor _ in range(300):\n    os.write(1, bytes(1 << 20))\nos._exit(1)",
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.slow if how == "unused fields" else ()) for how in FLOODS]
)
def test_a_flood_while_it_builds_is_bounded(place: WorkerWithPool, how: str) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    place.worker.builder = place.pool.builder  # without a record of requests
    before, most = resident(), [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            most.append(resident())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with pytest.raises(Rejection) as ended:
            place.load(f"SOURCE = {LIBRARY!r}\n{FLOOD}\n{FLOODS[how]}")
    finally:
        over.set()
        watching.join()
    assert ended.value.verdict is Verdict.CRASHED
    assert max(most) - before < 150 << 20


@pytest.mark.slow
def test_phases_without_end_are_stopped(place: WorkerWithPool) -> None:
    """All messages are there before the judge waits for one, so that waiting takes no time."""
    endless = """
import threading
def read():
    while True: os.read(connection, 1 << 16)
threading.Thread(target=read, daemon=True).start()
while True:
    for phase in (b"building", b"loading"):
        send(b'{"phase": "' + phase + b'"}')
"""
    place.worker.deadline = time.monotonic() + 3
    began = time.monotonic()
    with pytest.raises(Rejection) as ended:
        place.load(FLOOD + endless)
    assert ended.value.verdict is Verdict.TIMED_OUT
    assert time.monotonic() - began < 15
