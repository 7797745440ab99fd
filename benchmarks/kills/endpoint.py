"""A language model made of a script, in a process of its own: the same request always has the same answer.

    python -m benchmarks.kills.endpoint LOG

Prints its port, then writes a line of JSON to LOG for every request as it comes in and another one once its answer is
sent, each with the key that it came with; each session of a run has its own key. Of ten answers some four are a good
kernel; the others are wrong, crash, are broken, were there before (as they stood or under other names), nearly repeat a
failure, are prose, or are cut short.
"""

import json
import re
import sys
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from kbevolve.evolve.proposers.tuning.tunables import declared, with_values

#: Seconds that an answer takes, at least and at most.
SECONDS = (0.005, 0.03)
#: Kinds of answers, and how often each is given.
KINDS = {
    "good": 8,
    "wrong": 2,
    "crash": 1,
    "broken": 2,
    "same": 2,
    "renamed": 2,
    "near-duplicate": 2,
    "prose": 1,
    "cut": 1,
}
TITLES = ("Unroll the loop", "Larger tiles", "Wider loads", "Fewer passes", "Keep sums apart", "Share the work")
#: What the simulated judge takes for wrong and for a crash.
WRONG, CRASH = 'FLAW = "wrong"', 'FLAW = "crash"'


def identity(body: dict[str, Any]) -> str:
    """What a request is, whenever it is sent: 16 hexadecimal digits, which its answer repeats."""
    return sha256(json.dumps(body["messages"]).encode()).hexdigest()[:16]


def answer(body: dict[str, Any]) -> tuple[str, str]:
    """Text and finish reason of the one answer to a request."""
    name, said = identity(body), body["messages"][-1]["content"]
    rng, head = Random(name), f"Answer {name}:\n\n"
    if "JSON" in said:
        ideas = [
            {"title": f"{title} by {rng.randrange(2, 99)}", "mechanism": f"{title}.", "technique": "unrolling"}
            for title in rng.sample(TITLES, 3)
        ]
        return f"{head}```json\n{json.dumps(ideas)}\n```", "stop"
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "prose":
        return f"{head}I would rather know more about the shapes first.", "stop"
    kernel = _written(body["messages"], kind, rng)
    if kind == "cut":
        return f"{head}```python\n{kernel[: len(kernel) // 2]}", "length"
    return f"{head}```python\n{kernel}```", "stop"


def _written(messages: list[dict[str, str]], kind: str, rng: Random) -> str:
    """A whole file made of the last kernel that the conversation quotes."""
    quoted = re.findall(r"```python\n(.*?)```", "\n".join(one["content"] for one in messages), re.DOTALL)
    parent = [text for text in quoted if "class ModelNew" in text][-1].rstrip() + "\n"
    parent = re.sub(r"(?m)^(FLAW|VARIANT) = .*\n", "", parent)
    knobs = declared(parent)
    if kind == "same" or not knobs:
        return parent + "# as it was\n"
    if kind == "renamed":
        return re.sub(r"\b(folder|root)\b", r"\1_\1", parent)
    if kind == "broken":
        return parent.replace("class ModelNew", "class ModelNew(", 1)
    flaw = WRONG if kind == "near-duplicate" else {"wrong": WRONG, "crash": CRASH}.get(kind)
    if kind == "near-duplicate":
        return f"{parent}{flaw}\nVARIANT = {rng.randrange(50)}\n"
    child = with_values(parent, {knob.name: rng.choice(knob.choices) for knob in rng.sample(knobs, min(2, len(knobs)))})
    return f"{child}{flaw}\n" if flaw else child


class Endpoint(ThreadingHTTPServer):
    """The server; every connection has a thread."""

    daemon_threads = True

    def __init__(self, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._log = log.open("a", buffering=1)
        self._lock = threading.Lock()

    def note(self, what: str, name: str, key: str) -> None:
        """A line in the log."""
        with self._lock:
            self._log.write(json.dumps({"what": what, "request": name, "key": key}) + "\n")

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed hangs up: that is what all this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        name = identity(body)
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.note("asked", name, key)
        time.sleep(Random(f"seconds of {name}").uniform(*SECONDS))
        text, finish = answer(body)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        usage = {"prompt_tokens": 900, "completion_tokens": 300, "total_tokens": 1200}
        sent = {"id": name, "object": "chat.completion", "created": 0, "model": "scripted-1", "choices": [choice]}
        content = json.dumps({**sent, "usage": usage}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True
        else:
            self.server.note("answered", name, key)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on the terminal."""


def main() -> None:
    server = Endpoint(Path(sys.argv[1]))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
