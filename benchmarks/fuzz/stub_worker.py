"""A worker that is right until one reply, and then answers with whatever a seed gives. Imports no torch: 20 ms a case.

    python -I -S stub_worker.py SOCKET SEED

Its kernel is the negation of `replies.PROBLEM`, computed on the bytes of the shared memory.
"""

import json
import mmap
import os
import random
import signal
import socket
import sys
import time
from typing import Any

Reply = dict[str, Any]
HEADER = 4
#: What a call returned that is read again later.
KEPT = bytearray()
#: A float's sign is the highest bit of its last byte.
NEGATED = bytes(value ^ 0x80 for value in range(256))
#: Replaced by text that no JSON library would write.
MARK = "\0odd\0"
#: Values that a field of a reply must not have.
ODD = (
    "null",
    "true",
    "-1",
    "0",
    "1e-320",
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "9" * 4000,
    "9" * 5000,
    '""',
    "[]",
    "{}",
    "[[]]",
    "[null]",
    '{"foreign": 1}',
    '{"tensor": {}}',
    '"\\ud800"',
    '"\\u0000"',
    "1" + "0" * 300,
    "[1e-320]",
    "[NaN]",
    '{"list": {}}',
    '{"tuple": 3}',
    '[{"shape": {}}]',
    "[{}]",
    '{"": ""}',
    '"building"',
    '"loading"',
    "2.5",
    "[0.0001]",
)


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    choose = random.Random(int(sys.argv[2]))
    malformed = choose.choice((0, 1, 2, 2, 3, 4, 5, 7, 9, 11, 14, 18, 25))
    memory = None
    for number in range(10_000):
        request, descriptors = receive(connection)
        if request["request"] == "open":
            memory = mmap.mmap(descriptors[0], request["ticket"]["bytes"])
        reply = honest(request, memory)
        if number == malformed:
            answer(connection, choose, reply)
        else:
            send(connection, json.dumps(reply).encode())


def honest(request: Reply, memory: Any) -> Reply:
    """What a right worker replies."""
    if request["request"] not in ("try", "time", "again"):
        return {"ok": True, "loaded": False, "traits": [], "launches": [], "operations": ["aten.neg"]}
    started = time.perf_counter()
    source, place = request["tensors"][0], request["outputs"][0]
    size = 4
    for length in place["shape"]:
        size *= length
    values = bytearray(memory[source["offset"] : source["offset"] + size])
    values[3::4] = values[3::4].translate(NEGATED)
    if request["request"] == "again":
        values = KEPT
    elif request.get("keep"):
        KEPT[:] = values
    memory[place["offset"] : place["offset"] + size] = bytes(values)
    spent = 1e3 * (time.perf_counter() - started)
    leaf = {
        "shape": place["shape"],
        "dtype": "float32",
        "device": "cpu",
        "plain": True,
        "expanded": False,
        "aliases": False,
        "overlaps": False,
    }
    return {
        "ok": True,
        "times_ms": [max(spent, 1e-3)],
        "changed": [False],
        "changes": [],
        "leaves": [leaf],
        "structure": {"tensor": 0},
    }


def answer(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """Something else than the reply."""
    kinds = (
        field,
        field,
        field,
        field,
        failure,
        failure,
        nested,
        twice,
        bytes_only,
        header,
        flood,
        building,
        ends,
        odd_whole,
    )
    choose.choice(kinds)(connection, choose, reply)


def field(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """A field, or one inside of it, has an odd value, or is missing."""
    name = choose.choice(sorted(reply))
    inner = reply[name]
    if isinstance(inner, list) and inner and isinstance(inner[0], dict) and choose.random() < 0.7:
        inner = inner[0]
        name, reply_part = choose.choice(sorted(inner)), inner
    else:
        reply_part = reply
    if choose.random() < 0.15:
        del reply_part[name]
        send(connection, json.dumps(reply).encode())
        return
    wraps = choose.choice((MARK, [MARK], {"a": MARK}, [MARK, MARK], {MARK: MARK}))
    reply_part[name] = wraps if choose.random() < 0.4 else MARK
    value = choose.choice((*ODD, deep(choose), long(choose)))
    send(connection, json.dumps(reply).replace(json.dumps(MARK), value).encode("utf-8", "surrogatepass"))


def failure(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """A report of a failure, with odd texts."""
    texts = [
        "/" * 200_000,
        "/a" * 100_000,
        "/kbevolve-worker-" * 10_000,
        "(" * 200_000,
        "a:1: error: " * 10_000,
        "\ud800",
        "error " * 1000 + "\n" * 100_000,
        "ld: error " * 20_000,
        7,
        None,
        {"a": []},
        "\0",
        " Process 1 has " * 9000,
    ]
    report = {
        "ok": choose.choice((False, None, 0, "true", [])),
        "stage": choose.choice(("import", "build", "format", "call", 3, {}, [])),
        "type": choose.choice(texts),
        "text": choose.choice(texts),
        "frames": choose.choice(
            ([], [{}], [7], [{"code": choose.choice(texts), "line": choose.choice(texts)}], {}, "x")
        ),
    }
    send(connection, json.dumps(report).encode())


def nested(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """Three megabytes of brackets, as the whole reply or as a field."""
    body = deep(choose, 3_000_000)
    send(connection, body.encode() if choose.random() < 0.5 else f'{{"ok": true, "leaves": {body}}}'.encode())


def twice(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """The same keys again and again."""
    one = json.dumps(reply)[1:-1]
    send(
        connection,
        ("{" + ", ".join([one] * choose.choice((2, 100, 3000))) + ', "ok": ' + choose.choice(ODD) + "}").encode(),
    )


def bytes_only(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """Bytes that are no text."""
    send(connection, choose.randbytes(choose.choice((0, 1, 5, 1000, 100_000))))


def header(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """A length that is not that of the message."""
    body = json.dumps(reply).encode()
    length = choose.choice((0, 1, len(body) - 1, len(body) + 1, 8 << 20, (8 << 20) + 1, (1 << 32) - 1))
    connection.sendall(length.to_bytes(HEADER, "big") + body)
    if length > len(body):
        sys.exit(choose.choice((0, 1, 7)))


def flood(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """More than one reply, or far more than one may be."""
    for _ in range(choose.choice((2, 50, 20_000))):
        send(connection, json.dumps(reply).encode())


def building(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """Reports of compilers, and requests to build, out of turn and without form."""
    order = choose.choice(
        (
            None,
            3,
            [],
            {},
            {"name": "x"},
            {"name": "x" * 9000, "sources": []},
            {"name": "x", "sources": [["a.cpp", "int"]] * 900},
            {"name": "x", "sources": [["a.cpp", 3]]},
            {"name": {}, "sources": {"a": "b"}, "cflags": 7},
            {"name": "x", "sources": [["../a.cpp", "int a;"]], "cflags": ["-fplugin=a"], "ldflags": [["-l"]]},
        )
    )
    for phase in choose.choices(("building", "loading", "", [], 3), k=choose.choice((1, 2, 5))):
        send(connection, json.dumps({"phase": phase, "build": order}).encode())
    send(connection, json.dumps(reply).encode())


def ends(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """The process ends, with or without a part of the reply."""
    connection.sendall(json.dumps(reply).encode()[: choose.choice((0, 3, 30))])
    os.write(1, choose.choice((b"", b"\xff" * 100_000, b"error\n" * 9000)))
    number = choose.choice((0, signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT))
    if number:
        os.kill(os.getpid(), number)
    sys.exit(choose.choice((0, 1, 255)))


def odd_whole(connection: socket.socket, choose: random.Random, reply: Reply) -> None:
    """JSON that is no object, or nothing at all."""
    send(connection, choose.choice((*ODD, long(choose), " " * 100_000)).encode("utf-8", "surrogatepass"))


def deep(choose: random.Random, size: int = 2000) -> str:
    opening, closing = choose.choice((("[", "]"), ('{"a":', "}"), ("[", ""), ('[{"a":', "}]")))
    depth = size // (len(opening) + len(closing))
    return opening * depth + "1" * bool(closing) + closing * depth


def long(choose: random.Random) -> str:
    count = choose.choice((1000, 100_000, 1_000_000))
    return choose.choice(
        (f'"{"x" * count}"', f"[{'1,' * (count // 2)}1]", f'"{"/" * count}"', "{" + '"a":1,' * (count // 6) + '"a":1}')
    )


def receive(connection: socket.socket) -> tuple[Reply, list[int]]:
    head, descriptors, _, _ = socket.recv_fds(connection, HEADER, 4)
    if not head:
        sys.exit(0)
    while len(head) < HEADER:
        head += connection.recv(HEADER - len(head)) or sys.exit(0)
    body = b""
    while len(body) < int.from_bytes(head, "big"):
        body += connection.recv(1 << 20) or sys.exit(0)
    return json.loads(body), descriptors


def send(connection: socket.socket, body: bytes) -> None:
    connection.sendall(len(body).to_bytes(HEADER, "big") + body)


main()
