"""Tunables for the Triton kernels that torch.compile generates: the blocks of each, its warps and its stages.

Inductor chooses them by a rule from the kernel's sizes. Its search (max-autotune) tries a few by their times alone.
Here they are lines with choices, so that the run's tuner searches them, and the judge times the whole model.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kbevolve.configs.syntax import literal, parse

#: A generated kernel in the file: its text is a module of its own.
_KERNEL = re.compile(r"(async_compile\.triton\('(?P<name>\w+)', ''')(?P<text>.*?)(''')", re.S)
#: Kernels with tunables: those that move most, and at least such a share of what all move.
_MOST_KERNELS, _LEAST_SHARE = 3, 0.05
#: Choices of blocks; those above a dimension's size are left out.
_POWERS = tuple(1 << power for power in range(14))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the kernels of one of Inductor's decorators are launched."""

    #: Block's name -> its least and most value, and what a kernel starts with.
    blocks: Mapping[str, tuple[int, int, int]]
    #: The first is what a kernel starts with.
    warps: tuple[int, ...]
    #: Whether a loop loads ahead.
    staged: bool = False


#: By the decorator and the number of dimensions in its sizes. Three dimensions, and two that are summed over, are
#: left to Inductor's rule. The largest blocks are those that Inductor's code allows for in its masks.
_FORMS = {
    ("pointwise", 1): _Form(blocks={"XBLOCK": (128, 4096, 1024)}, warps=(4, 1, 2, 8)),
    ("pointwise", 2): _Form(blocks={"XBLOCK": (1, 256, 32), "YBLOCK": (1, 256, 32)}, warps=(4, 1, 2, 8)),
    ("reduction", 2): _Form(
        blocks={"XBLOCK": (1, 16, 1), "R0_BLOCK": (256, 8192, 2048)}, warps=(8, 4, 16, 32), staged=True
    ),
    ("persistent_reduction", 2): _Form(blocks={"XBLOCK": (1, 64, 1)}, warps=(4, 1, 2, 8, 16)),
    ("split_scan", 2): _Form(blocks={"R0_BLOCK": (256, 8192, 2048)}, warps=(8, 4, 16, 32)),
}
#: A reduction whose neighbours lie along x, as in a sum of columns. With blocks that are narrow along the neighbours
#: a maximum of columns took 2 to 25 times as long (one H200, kernelbench:1/49, 2026-11-28).
_ACROSS = _Form(blocks={"XBLOCK": (16, 256, 64), "R0_BLOCK": (8, 1024, 32)}, warps=(8, 2, 4, 16, 32), staged=True)
#: Elements of a block for each thread. A kernel with 512 compiled for 47 s and took 90 times as long as with 8.
_MOST_ELEMENTS = 32
_WARP = 32
#: Elements of a block of short rows at the beginning.
_ROW_ELEMENTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generated:
    """One kernel of the file."""

    name: str
    text: str
    #: Its decorator in the text, from "@" on, and the decorator's name.
    decorator: str
    kind: str
    #: The decorator's arguments as they stand there.
    arguments: Mapping[str, str]
    sizes: Mapping[str, int]
    #: Blocks that the launch chooses.
    blocks: tuple[str, ...]

    @property
    def form(self) -> _Form | None:
        """How it is launched; None where that is left to Inductor's rule."""
        form = _FORMS.get((self.kind, len(self.sizes)))
        if self.kind == "reduction" and form and self._is_across:
            form = _ACROSS
        return form if form and set(self.blocks) <= form.blocks.keys() else None

    @property
    def moved(self) -> int:
        """About how many elements it loads and stores."""
        meta = self._meta
        return prod(self.sizes.values()) * max(1, int(meta.get("num_load", 1)) + int(meta.get("num_store", 1)))

    @property
    def _is_across(self) -> bool:
        """Whether neighbours in memory lie along x: by Inductor's scores where it has any, else by its hint."""
        scores = self._meta.get("tiling_scores") or {}
        if any(scores.values()):
            return bool(scores.get("x", 0) > scores.get("r0_", 0))
        return "ReductionHint.INNER" not in self.arguments.get("reduction_hint", "")

    @property
    def _meta(self) -> dict[str, Any]:
        found = literal(re.sub(r"set\(\)|<[^>]*>", "None", self.arguments["inductor_meta"]))
        assert isinstance(found, dict), "Inductor writes one"
        return found


def with_tunable_kernels(source: str) -> str | None:
    """A file of torch.compile's code with tunables in its largest kernels; None where there are none to tune."""
    found = [one for match in _KERNEL.finditer(source) if (one := _read(match["name"], match["text"])) is not None]
    total = sum(one.moved for one in found)
    large = [one for one in found if one.form is not None and one.moved >= _LEAST_SHARE * total]
    chosen = sorted(large, key=lambda one: -one.moved)[:_MOST_KERNELS]
    if not chosen:
        return None
    texts = {one.name: _tunable(one, number) for number, one in enumerate(chosen)}

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}{texts.get(match['name'], match['text'])}{match[4]}"

    return _KERNEL.sub(replaced, source)


def _read(name: str, text: str) -> _Generated | None:
    """A kernel by its text; None for one of another form, e.g. a template of Inductor's own."""
    functions = [node for node in parse(text).body if isinstance(node, ast.FunctionDef)]
    for function, decorator in ((one, decorator) for one in functions for decorator in one.decorator_list):
        match decorator:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="triton_heuristics"), attr=kind), keywords=keywords):
                arguments = {one.arg: ast.get_source_segment(text, one.value) or "" for one in keywords if one.arg}
                if not {"size_hints", "inductor_meta", "triton_meta"} <= arguments.keys():
                    return None
                segment = ast.get_source_segment(text, decorator)
                assert segment is not None, "it was parsed from the text"
                return _Generated(
                    name=name,
                    text=text,
                    decorator=f"@{segment}",
                    kind=kind,
                    arguments=arguments,
                    sizes=literal(arguments["size_hints"]),
                    blocks=_launched_blocks(function.args.args),
                )
    return None


def _launched_blocks(arguments: Sequence[ast.arg]) -> tuple[str, ...]:
    return tuple(one.arg for one in arguments if one.arg.endswith("BLOCK") and one.annotation is not None)


def _tunable(kernel: _Generated, number: int) -> str:
    """The kernel's text with lines that declare its tunables, and a launch that uses them."""
    form = kernel.form
    assert form is not None, "only such kernels are chosen"
    lines, config = [], []
    warps, elements = f"KERNEL_{number}_WARPS", [f"KERNEL_{number}_{block}" for block in kernel.blocks]
    row = _power_from(kernel.sizes["r0_"]) if kernel.kind == "persistent_reduction" else 1
    if row > 1:
        elements.append(str(row))

    def declare(key: str, word: str, value: int, choices: Sequence[int]) -> None:
        lines.append(f"KERNEL_{number}_{word} = {value}  # tune: {', '.join(map(str, choices))}")
        config.append(f"{key!r}: KERNEL_{number}_{word}")

    for block in kernel.blocks:
        low, high, usual = form.blocks[block]
        size = kernel.sizes[block.removesuffix("BLOCK").lower()]
        if row > 1:
            usual = max(1, _ROW_ELEMENTS // row)
        choices = [power for power in _POWERS if low <= power <= min(high, max(size, low))]
        declare(block, block, min(choices, key=lambda power: abs(power - usual)), choices)
    declare("num_warps", "WARPS", form.warps[0], sorted(form.warps))
    if form.staged:
        declare("num_stages", "STAGES", 1, (1, 2, 3, 4))
    else:
        config.append("'num_stages': 1")
    block = " * ".join(elements)
    lines.append(f"# tune if: {block} >= {_WARP} * {warps} and {block} <= {_MOST_ELEMENTS * _WARP} * {warps}")
    launch = (
        f"@triton_heuristics.fixed_config(\n    config={{{', '.join(config)}}},\n    filename=__file__,\n"
        f"    triton_meta={kernel.arguments['triton_meta']},\n    inductor_meta={kernel.arguments['inductor_meta']},\n)"
    )
    return kernel.text.replace(kernel.decorator, "\n".join((*lines, "", launch)), 1)


def _power_from(size: int) -> int:
    """The least power of two that is not below."""
    return 1 << (size - 1).bit_length()
