"""Tunables for the Triton kernels that torch.compile generates: the blocks of each, its warps and its stages.

Inductor chooses them by a rule from the kernel's sizes. Its search (max-autotune) tries a few by their times alone.
Here they are lines with choices, so that the run's tuner searches them, and the judge times the whole model.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

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
        blocks={"XBLOCK": (1, 128, 1), "R0_BLOCK": (8, 8192, 2048)}, warps=(8, 2, 4, 16, 32), staged=True
    ),
    ("persistent_reduction", 2): _Form(blocks={"XBLOCK": (1, 64, 1)}, warps=(4, 1, 2, 8, 16)),
    ("split_scan", 2): _Form(blocks={"R0_BLOCK": (256, 8192, 2048)}, warps=(8, 4, 16, 32)),
}
#: A column sum reads neighbours along x: such kernels start with wide blocks.
_ACROSS = {"XBLOCK": 64, "R0_BLOCK": 32}


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
        return form if form and set(self.blocks) <= form.blocks.keys() else None

    @property
    def moved(self) -> int:
        """About how many elements it loads and stores."""
        meta = ast.literal_eval(re.sub(r"set\(\)|<[^>]*>", "None", self.arguments["inductor_meta"]))
        return prod(self.sizes.values()) * max(1, int(meta.get("num_load", 1)) + int(meta.get("num_store", 1)))


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
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
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
                    sizes=ast.literal_eval(arguments["size_hints"]),
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

    def declare(key: str, word: str, value: int, choices: Sequence[int]) -> None:
        lines.append(f"KERNEL_{number}_{word} = {value}  # tune: {', '.join(map(str, choices))}")
        config.append(f"{key!r}: KERNEL_{number}_{word}")

    for block in kernel.blocks:
        low, high, usual = form.blocks[block]
        size = kernel.sizes[block.removesuffix("BLOCK").lower()]
        if "ReductionHint.INNER" not in kernel.arguments.get("reduction_hint", "ReductionHint.INNER"):
            usual = _ACROSS.get(block, usual)
        choices = [power for power in _POWERS if low <= power <= min(high, max(size, low))]
        declare(block, block, min(choices, key=lambda power: abs(power - usual)), choices)
    declare("num_warps", "WARPS", form.warps[0], sorted(form.warps))
    if form.staged:
        declare("num_stages", "STAGES", 1, (1, 2, 3, 4))
    else:
        config.append("'num_stages': 1")
    launch = (
        f"@triton_heuristics.fixed_config(\n    config={{{', '.join(config)}}},\n    filename=__file__,\n"
        f"    triton_meta={kernel.arguments['triton_meta']},\n    inductor_meta={kernel.arguments['inductor_meta']},\n)"
    )
    return kernel.text.replace(kernel.decorator, "\n".join((*lines, "", launch)), 1)
