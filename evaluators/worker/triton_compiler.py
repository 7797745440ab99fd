"""Compiles one Triton kernel from its intermediate representation, in a confined process that then ends.

It holds no line of a candidate: what it reads is a text in MLIR and Triton's options. So what it makes is what Triton
makes of that text, and the judge may give it to every worker that asks for the same (`builds.triton`).
"""

import base64
import json
import socket
import zlib
from pathlib import Path
from typing import Any

from kbevolve.evaluators.worker.channel import Channel, Message

#: Characters of an error.
_MOST_ERROR = 10_000


def serve_compiler(*, socket_fd: int, sandbox: str) -> None:
    """Report the confinement, compile what the first request names, and end."""
    channel = Channel(socket.socket(fileno=socket_fd))
    channel.send({"ok": True, "sandbox": sandbox})
    request, _ = channel.receive()
    channel.send(_answer(request["triton"]))


def _answer(wanted: Message) -> Message:
    try:
        made = compiled(wanted["ir"], language=wanted["language"], options=wanted["options"], arch=wanted["arch"])
    except Exception as error:
        return {"ok": False, "text": f"{type(error).__name__}: {error}"[:_MOST_ERROR]}
    return {"ok": True, "product": base64.b64encode(made).decode()}


def compiled(ir: str, *, language: str, options: dict[str, Any], arch: int) -> bytes:
    """What Triton's stages make of a kernel: packed, for `unpacked`.

    Args:
        ir: the kernel as Triton's or Gluon's dialect of MLIR, before any pass.
        language: "TRITON" or "GLUON".
        options: the fields of Triton's options for the kernel.
        arch: compute capability without its point, e.g. 90.

    Raises:
        Exception: whatever a stage raises.
    """
    from triton._C.libtriton import ir as mlir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    backend = make_backend(GPUTarget("cuda", arch, 32))
    lists_as_tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    parsed = backend.parse_options(lists_as_tuples)
    context = mlir.context()
    mlir.load_dialects(context)
    backend.load_dialects(context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, Language[language])
    path = Path("kernel.mlir")
    path.write_text(ir)
    module = mlir.parse_mlir_module(str(path), context)
    module.context = context
    known = parsed.__dict__
    metadata = dict(known)
    texts: dict[str, str] = {}
    binaries: dict[str, str] = {}
    for name, stage in stages.items():
        module = stage(module, metadata)
        if isinstance(module, bytes):
            binaries[name] = base64.b64encode(module).decode()
        else:
            texts[name] = str(module)
    changed = {name: value for name, value in metadata.items() if name not in known or known[name] != value}
    return zlib.compress(json.dumps({"metadata": changed, "texts": texts, "binaries": binaries}).encode(), level=1)


def unpacked(product: bytes) -> tuple[dict[str, str | bytes], dict[str, Any]]:
    """The results of the stages by their names, and what they add to the metadata, from what `compiled` made."""
    made = json.loads(zlib.decompress(product))
    stages = made["texts"] | {name: base64.b64decode(text) for name, text in made["binaries"].items()}
    return stages, made["metadata"]
