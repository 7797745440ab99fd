"""The prompts: Jinja2 templates in `templates/`, and the parts of a brief that they show.

A prompt shows what an author of the kernel needs: the problem, the device, the parent with its measured speedup, what
was tried and what failed, and the rule of accuracy, which decides between ways to compute. It never shows the seeds:
what a kernel is judged on stays unknown to it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kbevolve.archive.formatting import percent_words, verdict_words
from kbevolve.archive.records import Backend, Idea, Operator
from kbevolve.configs.examples import examples
from kbevolve.configs.hardware import lines_of
from kbevolve.configs.playbook import OTHER, Playbook, PlaybookIdea
from kbevolve.configs.settings import Feedback, Libraries, Precision, Shots
from kbevolve.evaluators.correctness import rule
from kbevolve.evaluators.feedback.message import INACCURATE, feedback, is_inaccurate, performance, speed_line
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.facts import card_lines, device_lines
from kbevolve.evolve.proposers.codegen.idea_filters import IdeaFilter, helpful
from kbevolve.evolve.proposers.codegen.languages import TITLES, default_backends, possible_backends
from kbevolve.evolve.state.attempts import Failure
from kbevolve.evolve.state.lessons import pair_words, percent
from kbevolve.evolve.state.normalise import first_line, signature
from kbevolve.islands.island import Member
from kbevolve.islands.selection import FAR_AHEAD
from kbevolve.islands.stagnation import Stage

#: Longest kernel shown as an inspiration, characters (about 2500 tokens); a longer one would drown the parent.
#: One that is far ahead of the parent may (about 10,000 tokens): fast kernels of large models have 20,000 characters.
INSPIRATION_LENGTH, CHAMPION_LENGTH = 8000, 32_000

#: Most lines of each kind: failures, tried ideas (the newest), techniques.
SHOWN_FAILURES, SHOWN_TRIED, SHOWN_TECHNIQUES = 5, 20, 10

#: Speedup over the reference from which on a parent is good, and an edit of it should change one thing.
GOOD = 1.1

#: Titles of an inspiration.
SAME, SIMILAR = "Another kernel for the same problem", "A kernel for a similar problem"

#: Names in a kernel's text by which it computes on matrix units.
_MATRIX_UNITS = ("mma_async", "mma.sync", "warpgroup_mma", "wmma", "tl.dot")

#: Replaces the result of a kernel of which only the source may be shown.
HIDDEN_RESULT = "its results are not shown"

#: Language -> what a device's description holds where tests/gpu/test_skeletons_cuda.py passed: there its skeletons of
#: an fp32-accurate product (`skeleton_*_sm90.jinja`) are shown.
VERIFIED: Mapping[Backend, tuple[str, ...]] = {Backend.CUDA: ("sm_90",), Backend.TRITON: ("sm_90", "Triton 3.6")}


def system(brief: Brief, precision: Precision, libraries: Libraries = "full") -> str:
    """The device, the contract and the rules; the same for every child of a run.

    `libraries` are those that a kernel may call (`EvaluationSettings.allow_library`).
    """
    return _render(
        "system",
        device=brief.task.device,
        device_type=brief.task.device_type,
        device_lines=device_lines(brief.task.card) or lines_of(brief.task.device),
        precision=precision,
        libraries=libraries,
        rule=rule,
    )


def ideas(
    brief: Brief,
    shortlist: Sequence[PlaybookIdea],
    playbook: Playbook,
    *,
    filters: Sequence[IdeaFilter] = (),
    count: int = 4,
) -> str:
    """Stage one: so many ideas, with a few of the playbook as examples."""
    memory = brief.learnt.memory
    possible = [idea for idea in playbook.ideas if idea.runs_on(brief.task.device_type, brief.task.device)]
    # Tuning and crossing are operators of their own.
    named = {idea.technique for idea in helpful(possible, filters)} | {OTHER}
    return _render(
        "ideas",
        **_problem(brief),
        **_parent(brief),
        device=brief.task.device,
        backends=backends(brief),
        tensor_cores=_multiplies(brief),
        edited=edited(brief),
        languages=" or ".join(TITLES[backend] for backend in backends(brief)),
        failures=_failure_lines(brief),
        tried=[one for one in memory.outcomes.values() if not one.exhausted][-SHOWN_TRIED:],
        exhausted=list(memory.exhausted()),
        elsewhere=brief.learnt.transfer.ideas,
        expectations=_technique_lines(brief),
        lessons=memory.lessons,
        filters=filters,
        exploring=brief.island.stage is not Stage.SEARCHING,
        playbook=shortlist,
        techniques={slug: meaning for slug, meaning in playbook.techniques.items() if slug in named},
        count=count,
        first=memory.births == 0,
    )


def implement(brief: Brief, idea: Idea, shots: Shots = "one_shot") -> str:
    """Stage two: edits on the parent, or a whole file. `shots`: the examples for a whole file."""
    name = "implement_diff" if edited(brief) else "implement_rewrite"
    return _render(name, **_writing(brief, shots), **_parent(brief), idea=idea, replacing=_replacing(brief))


def cross(brief: Brief) -> str:
    """Both stages in one: two parents to combine."""
    return _render(
        "cross", **_writing(brief, "zero_shot"), crossed=[_shown(parent, brief) for parent in brief.parents[:2]]
    )


def repair_task(brief: Brief, failure: Failure) -> str:
    """The task that led to the failed file, for the first turn of a repair."""
    return _render(
        "repair_task",
        **_problem(brief),
        device=brief.task.device,
        tensor_cores=_multiplies(brief),
        idea=failure.idea,
        backends=(failure.kernel.backend,),
        skeleton=False,
        products=(),
        examples={},
    )


def repair(failure: Failure) -> str:
    """What is wrong with the failed file, and the request to repair it; or which kernel it nearly equals."""
    if failure.like is not None:
        message = feedback(failure.like.evaluation)
        return _render("near_duplicate", like=failure.like, message=message, idea=failure.idea)
    found = failure.evaluation
    verdict = INACCURATE if is_inaccurate(found) else verdict_words(found.verdict)
    return _render("repair", verdict=verdict, message=feedback(found), idea=failure.idea)


def again(complaint: str) -> str:
    """The follow-up to an answer that could not be used."""
    return _render("again", complaint=complaint)


def skeleton_text(name: str) -> str:
    """An fp32-accurate product for sm_90: the whole of "cuda" and "triton"; "gluon" follows Triton's."""
    return _ENVIRONMENT.get_template(f"skeleton_{name}_sm90.jinja").render()


def edited(brief: Brief) -> bool:
    """Whether the child is made by edits. A parent without a kernel of its own offers nothing to edit."""
    return (
        brief.operator is Operator.MUTATE and bool(brief.parents) and brief.parents[0].kernel.backend != Backend.TORCH
    )


def _replacing(brief: Brief) -> bool:
    """Whether the parent is one to replace: a library does its work, or it is hardly faster than the reference."""
    parent = brief.parents[0].evaluation if brief.parents else None
    return parent is not None and ("library-heavy" in parent.tags or (parent.timing.speedup or 0.0) < GOOD)


def backends(brief: Brief) -> tuple[Backend, ...]:
    """Languages of the child: an edit and a crossing keep their parents', a rewrite takes its island's."""
    if edited(brief) or brief.operator is Operator.CROSS:
        own = tuple(dict.fromkeys(parent.kernel.backend for parent in brief.parents))
        return tuple(backend for backend in own if backend != Backend.TORCH) or _written(brief)
    return _written(brief)


def _written(brief: Brief) -> tuple[Backend, ...]:
    """Languages of new files: the island's, else all of the device."""
    kind, named = (brief.task.device_type, brief.task.device), brief.island.policy.backend
    return (named,) if named in possible_backends(*kind) else default_backends(*kind)


def _problem(brief: Brief) -> dict[str, Any]:
    source = brief.task.problem.source_for(brief.task.device_type)
    return {
        "problem_name": brief.task.problem.name,
        "problem_source": source,
        "reduced": source != brief.task.problem.source,
        "card": card_lines(brief.task.card) if brief.task.card else [],
    }


def _parent(brief: Brief) -> dict[str, Any]:
    return {
        "parent": _shown(brief.parents[0], brief, allowed=brief.feedback) if brief.parents else None,
        "parent_title": "The kernel to improve" if edited(brief) else "The kernel to beat",
    }


def _shown(
    member: Member, brief: Brief, *, allowed: Collection[Feedback] = ("execution", "profiler")
) -> dict[str, Any]:
    """A correct kernel with its measured speedup and where its time goes, as far as `allowed` permits."""
    found = member.evaluation if "profiler" in allowed else replace(member.evaluation, profile=None)
    measured = "execution" in allowed
    return {
        "source": member.kernel.source,
        "result": speed_line(found) if measured else HIDDEN_RESULT,
        "performance": performance(found, brief.task.card) if measured else [],
    }


def _writing(brief: Brief, shots: Shots) -> dict[str, Any]:
    """What all prompts for code show. A new file gets the examples; for an edit its parent is example enough. An
    inspiration must have a kernel of its own; a kernel of a similar problem is shown instead of one."""
    given = brief.learnt.transferred_kernel
    if given is not None and len(given.source) <= INSPIRATION_LENGTH:
        title, words = SIMILAR, f"{given.problem}; there {given.speedup:.2f} times as fast as eager PyTorch"
        inspiration: dict[str, Any] | None = {"source": given.source, "result": words}
    else:
        title = SAME
        own = (one for one in brief.inspirations if one.kernel.backend != Backend.TORCH)
        inspiration = next((_shown(one, brief) for one in own if len(one.kernel.source) <= _longest(one, brief)), None)
    return {
        **_problem(brief),
        "device": brief.task.device,
        "backends": backends(brief),
        "tensor_cores": _multiplies(brief),
        "edited": edited(brief),
        "skeleton": shots != "zero_shot" and not edited(brief),
        "products": () if shots == "zero_shot" else _product_skeletons(brief),
        "examples": {one.value: examples(one) for one in backends(brief) if shots == "few_shot" and not edited(brief)},
        "inspiration": inspiration,
        "inspiration_title": title,
        "failures": _failure_lines(brief),
    }


def _longest(inspiration: Member, brief: Brief) -> int:
    is_ahead = any(inspiration.fitness > FAR_AHEAD * parent.fitness for parent in brief.parents[:1])
    return CHAMPION_LENGTH if is_ahead else INSPIRATION_LENGTH


def _multiplies(brief: Brief) -> bool:
    """Whether notes on matrix units help: products may take time, or a parent works with such units already."""
    return _may_be_bound_by_products(brief) or any(
        name in parent.kernel.source for parent in brief.parents for name in _MATRIX_UNITS
    )


def _may_be_bound_by_products(brief: Brief) -> bool:
    return brief.task.card is None or brief.task.card.bound_by != "memory"


def _product_skeletons(brief: Brief) -> tuple[Backend, ...]:
    """The languages whose product is shown: where arithmetic bounds an fp32 task, and the parent is not to be kept."""
    card, device = brief.task.card, brief.task.device
    if card is None or card.precision != "fp32" or not _may_be_bound_by_products(brief):
        return ()
    if edited(brief) and not _replacing(brief):
        return ()
    return tuple(one for one in backends(brief) if one in VERIFIED and all(word in device for word in VERIFIED[one]))


def _failure_lines(brief: Brief) -> list[str]:
    """The island's recent failures, one line per signature, the newest first, with how often the run had it."""
    kinds: dict[str, list[Failure]] = {}
    for failure in brief.learnt.failures:
        kinds.setdefault(signature(failure.evaluation), []).append(failure)
    lines = []
    for kind, failures in list(kinds.items())[:SHOWN_FAILURES]:
        count = max(brief.learnt.memory.failures.get(kind, 0), len(failures))
        idea = f" (idea: {failures[0].idea.title})" if failures[0].idea else ""
        times = f"tried {count}x: " if count > 1 else ""
        lines.append(f"{times}{first_line(failures[0].evaluation)}{idea}")
    return lines


def _technique_lines(brief: Brief) -> list[str]:
    """The results of each technique against each bottleneck, the most promising first."""
    experience = brief.learnt.memory.experience
    worth = {pair: experience.belief(*pair, brief.island.number) for pair in experience.pairs()}
    lines = []
    for pair in sorted(worth, key=lambda pair: (-worth[pair].improvement, pair))[:SHOWN_TECHNIQUES]:
        belief, worked = worth[pair], experience.tally(*pair).valid > 0
        those = f", those to change the speed by {percent(belief.gain)}" if worked else "; none has yet"
        lines.append(f"{pair_words(pair)}: {percent_words(belief.validity)} of its kernels are expected to work{those}")
    return lines


def _render(name: str, **values: Any) -> str:
    text = _ENVIRONMENT.get_template(f"{name}.jinja").render(**values)
    # Omitted parts leave blank lines behind.
    return "\n".join(_without_gaps(text.split("\n"))).strip() + "\n"


def _without_gaps(lines: Sequence[str]) -> list[str]:
    """Without a blank line that follows another, outside code."""
    kept: list[str] = []
    code = False
    for line in lines:
        code ^= line.startswith("```")
        if code or line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    return kept


_ENVIRONMENT = Environment(
    loader=PackageLoader("kbevolve.evolve.proposers.codegen", "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,
    keep_trailing_newline=True,
)
