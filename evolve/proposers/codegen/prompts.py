"""The prompts: Jinja2 templates in `templates/`, and the parts of a brief that they show.

A prompt shows what an author of the kernel needs: the problem, the device, the parent with its measured speedup, what
was tried and what failed. It never shows seeds, tolerances or how inputs are varied: those are the judge's secrets.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kbevolve.archive.formatting import input_words, operation_words, size_words, time_words
from kbevolve.archive.records import Backend, Idea, Operator, ProblemCard
from kbevolve.configs.playbook import OTHER, Playbook, PlaybookIdea
from kbevolve.configs.settings import Feedback, Precision
from kbevolve.evaluators.feedback.message import feedback, performance, speed_line
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.idea_filters import IdeaFilter, helpful
from kbevolve.evolve.proposers.codegen.prompt_history import (
    elsewhere_lines,
    exhausted_lines,
    failure_lines,
    lesson_lines,
    technique_lines,
    tried_lines,
)
from kbevolve.evolve.state.attempts import Failure
from kbevolve.islands.island import Member
from kbevolve.islands.stagnation import Stage

#: Longest kernel shown as an inspiration, characters (about 2500 tokens); a longer one would drown the parent.
INSPIRATION_LENGTH = 8000

#: Titles of an inspiration.
SAME, SIMILAR = "Another kernel for the same problem", "A kernel for a similar problem"

#: Replaces the result of a kernel of which only the source may be shown.
HIDDEN_RESULT = "its results are not shown"

#: Languages of new kernels on each type of device.
DEVICE_BACKENDS = {"cpu": (Backend.CPP,), "cuda": (Backend.CUDA, Backend.TRITON)}
LANGUAGES = {Backend.CPP: "C++", Backend.CUDA: "CUDA C++", Backend.TRITON: "Triton", Backend.TORCH: "torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownKernel:
    """A kernel as prompts show it."""

    source: str
    #: How fast it is, in words.
    result: str
    #: Lines on where its time goes.
    performance: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, member: Member, card: ProblemCard | None, *, allowed: Collection[Feedback] = ("execution", "profiler")
    ) -> "ShownKernel":
        """A correct kernel with its measured speedup, as far as `allowed` permits."""
        if "execution" not in allowed:
            return cls(source=member.kernel.source, result=HIDDEN_RESULT)
        profiled = member.evaluation if "profiler" in allowed else replace(member.evaluation, profile=None)
        return cls(
            source=member.kernel.source,
            result=speed_line(member.evaluation),
            performance=tuple(performance(profiled, card)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """Renders the prompts of one run."""

    playbook: Playbook
    #: Precision that the task asks for.
    precision: Precision
    #: Ideas asked for at once.
    ideas_per_call: int

    def system(self, brief: Brief) -> str:
        """The device, the contract and the rules; the same for every child of a run."""
        return _render("system", device=brief.task.device, device_type=brief.task.device_type, precision=self.precision)

    def ideas(self, brief: Brief, shortlist: Sequence[PlaybookIdea], filters: Sequence[IdeaFilter] = ()) -> str:
        """Stage one."""
        return _render(
            "ideas",
            **_problem(brief),
            **_parent(brief),
            edited=edited(brief),
            languages=" or ".join(LANGUAGES[backend] for backend in backends(brief)),
            failures=failure_lines(brief),
            tried=tried_lines(brief),
            exhausted=exhausted_lines(brief),
            elsewhere=elsewhere_lines(brief),
            expectations=technique_lines(brief),
            lessons=lesson_lines(brief),
            limits=[one.reason for one in filters],
            exploring=brief.island.stage is not Stage.SEARCHING,
            playbook=shortlist,
            techniques=self._techniques(brief, filters),
            count=self.ideas_per_call,
        )

    def implement(self, brief: Brief, idea: Idea) -> str:
        """Stage two: edits on the parent, or a whole file."""
        name = "implement_diff" if edited(brief) else "implement_rewrite"
        return _render(name, **_writing(brief), **_parent(brief), idea=idea)

    def cross(self, brief: Brief) -> str:
        """Both stages in one: two parents to combine."""
        crossed = [ShownKernel.of(parent, brief.task.card) for parent in brief.parents[:2]]
        return _render("cross", **_writing(brief), crossed=crossed)

    def repair_task(self, brief: Brief, failure: Failure) -> str:
        """The task that led to the failed file, for the first turn of a repair."""
        return _render(
            "repair_task",
            **_problem(brief),
            device=brief.task.device,
            idea=failure.idea,
            backends=(failure.kernel.backend,),
            skeleton=False,
        )

    def repair(self, failure: Failure) -> str:
        """What is wrong with the failed file, and the request to repair it; or which kernel it nearly equals."""
        if failure.like is not None:
            message = feedback(failure.like.evaluation)
            return _render("near_duplicate", like=failure.like, message=message, idea=failure.idea)
        verdict = failure.evaluation.verdict.name.lower().replace("_", " ")
        return _render("repair", verdict=verdict, message=feedback(failure.evaluation), idea=failure.idea)

    def again(self, complaint: str) -> str:
        """The follow-up to an answer that could not be used."""
        return _render("again", complaint=complaint)

    def _techniques(self, brief: Brief, filters: Sequence[IdeaFilter]) -> dict[str, str]:
        """The techniques that an idea may name; tuning and crossing are operators of their own."""
        possible = [idea for idea in self.playbook.ideas if idea.runs_on(brief.task.device_type, brief.task.device)]
        known = {idea.technique for idea in helpful(possible, filters)} | {OTHER}
        return {slug: meaning for slug, meaning in self.playbook.techniques.items() if slug in known}


def edited(brief: Brief) -> bool:
    """Whether the child is made by edits. A parent without a kernel of its own offers nothing to edit."""
    return (
        brief.operator is Operator.MUTATE and bool(brief.parents) and brief.parents[0].kernel.backend != Backend.TORCH
    )


def backends(brief: Brief) -> tuple[Backend, ...]:
    """Languages of the child: an edit and a crossing keep their parents', a rewrite takes its island's."""
    if edited(brief) or brief.operator is Operator.CROSS:
        own = tuple(dict.fromkeys(parent.kernel.backend for parent in brief.parents))
        return tuple(backend for backend in own if backend != Backend.TORCH) or _written(brief)
    return _written(brief)


def _written(brief: Brief) -> tuple[Backend, ...]:
    """Languages of new files: the island's, else all of the device."""
    possible = DEVICE_BACKENDS[brief.task.device_type]
    return (brief.island.policy.backend,) if brief.island.policy.backend in possible else possible


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
        "parent": ShownKernel.of(brief.parents[0], brief.task.card, allowed=brief.feedback) if brief.parents else None,
        "parent_title": "The kernel to improve" if edited(brief) else "The kernel to beat",
    }


def _writing(brief: Brief) -> dict[str, Any]:
    """What all prompts for code show. A new file gets the skeletons; for an edit its parent is example enough. An
    inspiration must have a kernel of its own."""
    inspiration = next(
        (
            other
            for other in brief.inspirations
            if other.kernel.backend != Backend.TORCH and len(other.kernel.source) <= INSPIRATION_LENGTH
        ),
        None,
    )
    transferred = _transferred_kernel(brief)
    return {
        **_problem(brief),
        "device": brief.task.device,
        "backends": backends(brief),
        "edited": edited(brief),
        "skeleton": not edited(brief),
        "inspiration": transferred or (ShownKernel.of(inspiration, brief.task.card) if inspiration else None),
        "inspiration_title": SIMILAR if transferred else SAME,
        "failures": failure_lines(brief),
    }


def _transferred_kernel(brief: Brief) -> ShownKernel | None:
    """The kernel of a similar problem that is shown instead of one for the same problem."""
    given = brief.learnt.transferred_kernel
    if given is None or len(given.source) > INSPIRATION_LENGTH:
        return None
    words = f"{given.problem}; there {given.speedup:.2f} times as fast as eager PyTorch"
    return ShownKernel(source=given.source, result=words)


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


#: Flags that help to write a kernel. The others show how to deceive the judge.
_HELPFUL_FLAGS = ("launch-bound", "reducible", "dead-code", "in-place")


def card_lines(card: ProblemCard) -> list[str]:
    """What an author of a kernel should know about the problem; never what the judge checks."""
    work = f", and computes {operation_words(card.flops)} in products" if card.flops else ""
    lines = [f"It must read {input_words(card)} and write {size_words(card.output_bytes)}{work}."]
    if card.task_roofline_ms:
        limit = "memory bandwidth" if card.bound_by == "memory" else "the arithmetic"
        lines.append(
            f"On this device {limit} bounds it: at the roofline a call takes {time_words(card.task_roofline_ms)}, "
            f"eager PyTorch takes {time_words(card.eager_ms)}."
        )
    return lines + [f"{flag.capitalize()}: {card.flags[flag]}." for flag in _HELPFUL_FLAGS if flag in card.flags]
