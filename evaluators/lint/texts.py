"""Constant strings that a file writes in parts: ``"m" + "m"``, ``"".join(…)``, ``chr(109)``, base64."""

import ast
import base64
import binascii
import codecs
from collections.abc import Callable, Sequence

from kbevolve.evaluators.lint.words import words

#: Characters kept of a string: no source is longer, and ``"a" * 10**9`` must cost nothing.
MOST = 400_000

#: Methods of a string that give another, where all arguments are known.
_METHODS = words(
    """
    lower upper strip lstrip rstrip replace title capitalize swapcase removeprefix removesuffix casefold zfill
    translate expandtabs
"""
)
#: Functions that decode, by their dotted names.
_DECODERS: dict[str, Callable[[str], bytes]] = {
    "base64.b64decode": base64.b64decode,
    "base64.standard_b64decode": base64.b64decode,
    "base64.urlsafe_b64decode": base64.urlsafe_b64decode,
    "base64.decodebytes": lambda text: base64.decodebytes(text.encode()),
    "base64.b32decode": base64.b32decode,
    "base64.b16decode": base64.b16decode,
    "base64.b85decode": base64.b85decode,
    "binascii.a2b_base64": binascii.a2b_base64,
    "binascii.unhexlify": binascii.unhexlify,
    "builtins.bytes.fromhex": bytes.fromhex,
    "builtins.bytearray.fromhex": bytes.fromhex,
}


def decoded(function: str, text: str) -> str | None:
    """What a decoder of the standard library makes of a constant, None when it is none or fails."""
    decode = _DECODERS.get(function)
    if decode is None or len(text) > MOST:
        return None
    try:
        return decode(text).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None


def method(text: str, name: str, arguments: Sequence[str | None]) -> str | None:
    """``text.name(*arguments)`` where that is a string; the text itself where an argument is not known."""
    if name in {"encode", "decode"}:
        if arguments[:1] and arguments[0] in {"rot13", "rot_13"}:
            return codecs.encode(text, "rot13")
        return text
    if name == "format":
        return formatted(text, arguments)
    if name not in _METHODS:
        return None
    known = [argument for argument in arguments if argument is not None]
    if len(known) < len(arguments):
        return text
    try:
        result: object = getattr(text, name)(*known)
    except (TypeError, ValueError):
        return text
    return result[:MOST] if isinstance(result, str) else text


def formatted(text: str, arguments: Sequence[str | None]) -> str:
    """``text.format(*arguments)``; fields that are not known, and braces of a C++ text, stay as they are."""
    for index, argument in enumerate(arguments[:32]):
        if argument is not None and len(text) + len(argument) < MOST:
            text = text.replace(f"{{{index}}}", argument).replace("{}", argument, 1)
    return text


def percent(text: str, arguments: Sequence[str | None]) -> str:
    """``text % arguments`` for ``%s``."""
    for argument in arguments[:32]:
        if argument is None or "%s" not in text or len(text) + len(argument) > MOST:
            break
        text = text.replace("%s", argument, 1)
    return text


def sliced(text: str, where: ast.expr) -> str | None:
    """``text[where]`` for constant indices."""
    try:
        match where:
            case ast.Slice(lower=lower, upper=upper, step=step):
                return text[slice(_integer(lower), _integer(upper), _integer(step))]
            case _:
                index = _integer(where)
                return None if index is None else text[index]
    except (IndexError, ValueError, TypeError):
        return None


def _integer(node: ast.expr | None) -> int | None:
    match node:
        case None:
            return None
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    raise ValueError("no constant index")
