"""Whole files in a model's answer: which code block is the kernel."""

import ast
import contextlib
import textwrap
import warnings

from kbevolve.configs.syntax import parse
from kbevolve.evolve.proposers.codegen.code_blocks import CodeBlock, code_blocks, possible_blocks

#: The class that every kernel defines.
CLASS = "ModelNew"

#: A later whole file wins over an earlier, longer one (the quoted parent), unless that is more than this many times as
#: long: the later one is then an excerpt that shows how to use the class.
EXCERPT = 3

#: Characters of an answer that are read. The largest known kernels have some 100,000.
MOST_ANSWER = 400_000

#: Beginning of the complaint about an open block.
CUT = "the code block is not closed, the answer seems to be cut short:"


class AnswerError(ValueError):
    """An answer without a usable source; the text says which part, and what is wrong with it."""


def whole_file(answer: str, *, truncated: bool = False) -> str:
    """The last whole file of an answer that defines ModelNew; an earlier one is a quotation of the old file.

    Raises:
        AnswerError: there is no code, or the code is no kernel; the text is about the last attempt.
    """
    blocks = [block for block in code_blocks(answer) if block.closed or not truncated]
    named = [block for block in blocks if f"class {CLASS}" in block.text]
    if not named and f"class {CLASS}" in answer and not blocks and not truncated:
        named = [CodeBlock(text=answer)]  # a bare file
    whole, complaint = [], None
    for block in named:
        try:
            whole.append(_sound(block))
        except AnswerError as error:
            complaint = error
    whole = whole or _within_fences(answer)
    if whole:
        longest = max(len(source) for source in whole)
        return next(source for source in reversed(whole) if len(source) * EXCERPT >= longest)
    if complaint is not None:
        raise complaint
    if blocks:
        raise AnswerError(f"no code block of the answer defines class {CLASS}.")
    raise AnswerError("there is no code in the answer.")


def ends_inside(answer: str) -> bool:
    """Whether an answer ends within a code block."""
    blocks = code_blocks(answer)
    return bool(blocks) and not blocks[-1].closed


def _sound(block: CodeBlock) -> str:
    """The source in a block, without an indentation of the whole.

    Raises:
        AnswerError: it is no kernel, or an open block ends before its kernel does.
    """
    try:
        indented = block.text.lstrip("\n")[:1].isspace()
        source = checked(textwrap.dedent(block.text) if indented else block.text)
    except AnswerError as error:
        if block.closed:
            raise
        raise AnswerError(f"{CUT} {error}") from None
    if not block.closed and not _returns(source):
        raise AnswerError(f"{CUT} no forward that returns.")
    return source


def _within_fences(answer: str) -> list[str]:
    """Whole files of an answer with nested fences, in its order."""
    whole: list[str] = []
    for candidates in possible_blocks(answer):
        for block in candidates:
            if f"class {CLASS}" not in block.text:
                continue
            with contextlib.suppress(AnswerError):
                whole.append(_sound(block))
                break
    return whole


def _returns(source: str) -> bool:
    """Whether the kernel's forward returns something; one that was cut short seldom does."""
    kernel = next(node for node in _parsed(source).body if isinstance(node, ast.ClassDef) and node.name == CLASS)
    return any(
        isinstance(part, ast.Return)
        for method in kernel.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
        for part in ast.walk(method)
    )


def checked(source: str) -> str:
    """`source` with one line end at its end, if it is Python that defines ModelNew at the top level.

    Raises:
        AnswerError: it is not.
    """
    source = source.replace("\r\n", "\n").lstrip("\ufeff").strip("\n") + "\n"
    try:
        tree = _parsed(source)
    except SyntaxError as error:
        line = (error.text or "").strip()[:120]
        where = f"line {error.lineno}" + (f", `{line}`" if line else "")
        raise AnswerError(f"the file is not Python: {where}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise AnswerError(f"the file is not Python: {error}.") from None
    if not any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in tree.body):
        raise AnswerError(f"the file defines no class {CLASS} at the top level.")
    return source


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a child's "\d" is not our warning
        return parse(source)
