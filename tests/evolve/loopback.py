"""A language model made of a script: speaks the OpenAI protocol on 127.0.0.1, for tests and for trying things by hand.

In tests it is the fixture `endpoint` (conftest.py): queue answers with `say`, `fail`, `hang`, `trickle`; read
`requests` afterwards. An unscripted request gets status 418, so that a hidden retry cannot pass unseen.

By hand:

    python tests/evolve/loopback.py --port 8137 [answer.md ...]
    kbevolve run --problem L1/matmul --model loopback --api-base http://127.0.0.1:8137/v1

Without answer files it plays a model: four ideas when asked for JSON, else an edit that sets a declared tunable of
the quoted kernel to another of its values.
"""

import argparse
import json
import random
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kbevolve.evolve.proposers.tuning.tunables import declared, with_values


@dataclass(frozen=True)
class Answer:
    """What one request gets."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    #: Seconds of silence before anything is sent.
    silence: float = 0.0
    #: Seconds between the bytes of the body; 0 sends it at once.
    drip: float = 0.0


@dataclass(frozen=True)
class Request:
    """What one request asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, str]]:
        return list(self.body["messages"])

    @property
    def last(self) -> str:
        """The user's last turn."""
        return self.messages[-1]["content"]


def completion(text: str | None, *, finish: str | None = "stop", usage: tuple[int, int] | None = (100, 20)) -> bytes:
    """A chat completion as JSON."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "loopback-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(body).encode()


class Loopback:
    """The server: a queue of answers and the history of requests. Use as a context manager."""

    def __init__(self, *, port: int = 0, otherwise: Callable[[Request], Answer] | None = None) -> None:
        self.requests: list[Request] = []
        self._answers: deque[Answer] = deque()
        self._otherwise = otherwise
        #: Set when the server ends, so that silent answers end, too.
        self._over = threading.Event()
        #: Connections that the client closed before its answer was complete.
        self.hung_up = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base(self) -> str:
        """Base address, e.g. ``http://127.0.0.1:40001/v1``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def say(self, text: str | None, *, finish: str | None = "stop", usage: tuple[int, int] | None = (100, 20)) -> None:
        """Queue an answer of the model."""
        self._answers.append(Answer(body=completion(text, finish=finish, usage=usage)))

    def send(self, body: bytes, *, content_type: str = "application/json") -> None:
        """Queue a body as it is, with status 200."""
        self._answers.append(Answer(body=body, headers={"Content-Type": content_type}))

    def fail(self, status: int, *, message: str = "", code: str | None = None, **headers: str) -> None:
        """Queue an error; keywords become headers (``retry_after="1"``)."""
        error = {"error": {"message": message, "type": code, "code": code}}
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}
        self._answers.append(Answer(status=status, body=json.dumps(error).encode(), headers=named))

    def hang(self) -> None:
        """Queue an answer that never comes."""
        self._answers.append(Answer(silence=3600.0))

    def trickle(self, text: str, *, every: float = 0.05) -> None:
        """Queue an answer of which a byte comes every so many seconds."""
        self._answers.append(Answer(body=completion(text), drip=every))

    def __enter__(self) -> "Loopback":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _next(self, request: Request) -> Answer:
        self.requests.append(request)
        if self._answers:
            return self._answers.popleft()
        return self._otherwise(request) if self._otherwise else Answer(status=418, body=b'{"error": "unscripted"}')

    def _handler(loopback) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size) or b"{}")
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = loopback._next(Request(path=self.path, headers=headers, body=body))
                self.connection.settimeout(0.01)
                waited = 0.0
                while waited < answer.silence and not loopback._over.is_set():
                    if self._client_left():
                        return
                    waited += 0.01
                self.connection.settimeout(None)
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                try:
                    self._write(answer)
                except OSError:
                    loopback.hung_up.set()
                    self.close_connection = True

            def _write(self, answer: Answer) -> None:
                if not answer.drip:
                    self.wfile.write(answer.body)
                    return
                for byte in answer.body:
                    if loopback._over.wait(answer.drip):
                        return
                    self.wfile.write(bytes([byte]))

            def _client_left(self) -> bool:
                try:
                    left = self.connection.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    left = True
                if left:
                    loopback.hung_up.set()
                    self.close_connection = True
                return left

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler


IDEAS = [
    ("Larger tiles", "Fewer loads of each operand for each multiplication.", "block-tiling"),
    ("Unroll the inner loop", "More independent multiplications in flight.", "instruction-parallelism"),
    ("Wider loads", "Fewer load instructions for the same bytes.", "vectorize"),
    ("Another split of the work", "All processors end at the same time.", "work-split"),
]


def play(request: Request) -> Answer:
    """A model that only knows how to turn the knobs that a kernel declares."""
    if "JSON" in request.last:
        ideas = [{"title": t, "mechanism": m, "technique": k, "expected_gain": 1.2} for t, m, k in IDEAS]
        return Answer(body=completion(f"```json\n{json.dumps(ideas)}\n```"))
    said = "\n".join(message["content"] for message in request.messages)
    kernels = [block for block in re.findall(r"```python\n(.*?)```", said, re.S) if "class ModelNew" in block]
    kernel = kernels[-1] if kernels else "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    knobs = declared(kernel)
    if not knobs:
        return Answer(body=completion(f"```python\n{kernel}\nVARIANT = {random.random()}\n```"))
    knob = random.choice(knobs)
    child = with_values(kernel, {knob.name: random.choice([value for value in knob.choices if value != knob.value])})
    if "SEARCH" not in request.last:
        return Answer(body=completion(f"```python\n{child}\n```", usage=(2000, 900)))
    edits = [
        f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        for old, new in zip(kernel.split("\n"), child.split("\n"), strict=True)
        if old != new
    ]
    return Answer(body=completion("\n".join(edits), usage=(2000, 80)))


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted language model on 127.0.0.1.")
    parser.add_argument("answers", nargs="*", type=Path, help="files with answers, given in order and round again")
    parser.add_argument("--port", type=int, default=8137)
    options = parser.parse_args()
    texts = deque(path.read_text() for path in options.answers)

    def otherwise(request: Request) -> Answer:
        print(f"--- request {len(server.requests)}\n{request.last}\n", flush=True)
        if not texts:
            return play(request)
        texts.rotate(-1)
        return Answer(body=completion(texts[-1]))

    with Loopback(port=options.port, otherwise=otherwise) as server:
        print(f"listening: --model loopback --api-base {server.base}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
