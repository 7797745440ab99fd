"""The prompts: Jinja2 templates in `templates/`, and what of a brief is shown in them.

A prompt shows what a person would want who has to write the kernel: the problem, the device, the parent with its
measured speedup, what was tried and what failed. It never shows seeds, tolerances or how inputs are varied: those
are the judge's secrets. Contexts are kept small; the numbers below say how small.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kbevolve.archive.formatting import input_words, operation_words, size_words, time_words
from kbevolve.archive.records import Backend, Idea, Operator, ProblemCard
from kbevolve.configs.playbook import OTHER, Playbook, PlaybookIdea
from kbevolve.configs.settings import Feedback, Precision
from kbevolve.evaluators.feedback.message import feedback, performance, standing
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.idea_filters import Mask, unmasked
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

#: What an inspiration is.
SAME, SIMILAR = "Another kernel for the same problem", "A kernel for a similar problem"

#: What stands for the standing of a kernel of which nothing is told but its source.
UNREPORTED = "how it fared is not told"

#: What a child may be written in on each type of device.
DEVICE_BACKENDS = {"cpu": (Backend.CPP,), "cuda": (Backend.CUDA, Backend.TRITON)}
LANGUAGES = {Backend.CPP: "C++", Backend.CUDA: "CUDA C++", Backend.TRITON: "Triton", Backend.TORCH: "torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A kernel as prompts show it."""

    source: str
    #: How fast it is, in words.
    standing: str
    #: Lines on where its time goes.
    performance: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, member: Member, card: ProblemCard | None = None, *, told: Collection[Feedback] = ("execution", "profiler")
    ) -> "Shown":
        """A correct kernel with its measured speedup; what is not to be told is left out."""
        if "execution" not in told:
            return cls(source=member.kernel.source, standing=UNREPORTED)
        profiled = member.evaluation if "profiler" in told else replace(member.evaluation, profile=None)
        return cls(
            source=member.kernel.source,
            standing=standing(member.evaluation),
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
        """Who the model is, the device, the contract and the rules; the same for every child of a run."""
        return _render("system", device=brief.task.device, device_type=brief.task.device_type, precision=self.precision)

    def ideas(self, brief: Brief, shortlist: Sequence[PlaybookIdea], masks: Sequence[Mask] = ()) -> str:
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
            paid=technique_lines(brief),
            lessons=lesson_lines(brief),
            masks=[mask.words for mask in masks],
            exploring=brief.island.stage is not Stage.SEARCHING,
            playbook=shortlist,
            techniques=self._techniques(brief, masks),
            count=self.ideas_per_call,
        )

    def implement_diff(self, brief: Brief, idea: Idea) -> str:
        """Stage two, as edits on the parent."""
        return _render("implement_diff", **_writing(brief), **_parent(brief), idea=idea)

    def implement_rewrite(self, brief: Brief, idea: Idea) -> str:
        """Stage two, as a whole file."""
        return _render("implement_rewrite", **_writing(brief), **_parent(brief), idea=idea)

    def cross(self, brief: Brief) -> str:
        """Both stages in one: two parents to be combined."""
        return _render(
            "cross", **_writing(brief), crossed=[Shown.of(parent, brief.task.card) for parent in brief.parents[:2]]
        )

    def repair_task(self, brief: Brief, failure: Failure) -> str:
        """The task as it stood before the failed file, for the first turn of a repair."""
        return _render(
            "repair_task",
            **_problem(brief),
            device=brief.task.device,
            idea=failure.idea,
            backends=(failure.kernel.backend,),
            skeleton=False,
        )

    def repair(self, failure: Failure) -> str:
        """What is wrong with the failed file, and the wish for a repair; or which other kernel it nearly equals."""
        if failure.like is not None:
            return _render(
                "familiar",
                share=100 * failure.like.share,
                kernel=failure.like.kernel,
                fared=failure.like.fared,
                message=feedback(failure.like.evaluation),
                idea=failure.idea,
            )
        return _render(
            "repair",
            verdict=failure.evaluation.verdict.name.lower().replace("_", " "),
            message=feedback(failure.evaluation),
            idea=failure.idea,
        )

    def again(self, complaint: str) -> str:
        """The follow-up to an answer that could not be used."""
        return _render("again", complaint=complaint)

    def _techniques(self, brief: Brief, masks: Sequence[Mask]) -> dict[str, str]:
        """What an idea may be filed under on a device; other values and crossings have operators of their own."""
        possible = [idea for idea in self.playbook.ideas if idea.runs_on(brief.task.device_type, brief.task.device)]
        known = {idea.technique for idea in unmasked(possible, masks)} | {OTHER}
        return {slug: meaning for slug, meaning in self.playbook.techniques.items() if slug in known}


def edited(brief: Brief) -> bool:
    """Whether the child is made by edits. A parent that writes no kernel of its own offers nothing to edit."""
    return (
        brief.operator is Operator.MUTATE and bool(brief.parents) and brief.parents[0].kernel.backend != Backend.TORCH
    )


def backends(brief: Brief) -> tuple[Backend, ...]:
    """What the child is written in: an edit and a crossing stay with their parents, a rewrite with its island."""
    if edited(brief) or brief.operator is Operator.CROSS:
        own = tuple(dict.fromkeys(parent.kernel.backend for parent in brief.parents))
        return tuple(backend for backend in own if backend != Backend.TORCH) or _written(brief)
    return _written(brief)


def _written(brief: Brief) -> tuple[Backend, ...]:
    """What new files are written in: what their island is for, else whatever the device takes."""
    possible = DEVICE_BACKENDS[brief.task.device_type]
    return (brief.island.policy.backend,) if brief.island.policy.backend in possible else possible


def _problem(brief: Brief) -> dict[str, Any]:
    source = brief.task.problem.source_for(brief.task.device_type)
    return {
        "problem_name": brief.task.problem.name,
        "problem_source": source,
        "reduced": source != brief.task.problem.source,
        "card": prompt_lines(brief.task.card) if brief.task.card else [],
    }


def _parent(brief: Brief) -> dict[str, Any]:
    return {
        "parent": Shown.of(brief.parents[0], brief.task.card, told=brief.feedback) if brief.parents else None,
        "parent_title": "The kernel to improve" if edited(brief) else "The kernel to beat",
    }


def _writing(brief: Brief) -> dict[str, Any]:
    """What all prompts show that ask for code. A parent that is edited is example enough; a new file gets the
    skeletons. An inspiration must write a kernel of its own."""
    inspiration = next(
        (
            other
            for other in brief.inspirations
            if other.kernel.backend != Backend.TORCH and len(other.kernel.source) <= INSPIRATION_LENGTH
        ),
        None,
    )
    return {
        **_problem(brief),
        "device": brief.task.device,
        "backends": backends(brief),
        "edited": edited(brief),
        "skeleton": not edited(brief),
        "inspiration": _transferred_kernel(brief) or (Shown.of(inspiration, brief.task.card) if inspiration else None),
        "inspiration_title": SIMILAR if _transferred_kernel(brief) else SAME,
        "failures": failure_lines(brief),
    }


def _transferred_kernel(brief: Brief) -> Shown | None:
    """The kernel of a similar problem that is shown instead of one for the same problem."""
    given = brief.learnt.transferred_kernel
    if given is None or len(given.source) > INSPIRATION_LENGTH:
        return None
    words = f"{given.problem}; there {given.speedup:.2f} times as fast as eager PyTorch"
    return Shown(source=given.source, standing=words)


def _render(name: str, **values: Any) -> str:
    text = _ENVIRONMENT.get_template(f"{name}.jinja").render(**values)
    # Parts that were left out leave their blank lines behind.
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


#: Flags that help whoever writes a kernel. The others tell how the judge might be fooled.
_HELPFUL = ("launch-bound", "reducible", "dead-code", "in-place")


def prompt_lines(card: ProblemCard) -> list[str]:
    """What a model should know that writes a kernel for it; never what the judge looks at."""
    lines = [f"It must read {input_words(card)} and write {size_words(card.output_bytes)}{_work(card)}."]
    if card.task_roofline_ms:
        limit = "memory bandwidth" if card.bound_by == "memory" else "the arithmetic"
        lines.append(
            f"On this device {limit} bounds it: at the roofline a call takes {time_words(card.task_roofline_ms)}, "
            f"eager PyTorch takes {time_words(card.eager_ms)}."
        )
    return lines + [f"{flag.capitalize()}: {card.flags[flag]}." for flag in _HELPFUL if flag in card.flags]


def _work(card: ProblemCard) -> str:
    return f", and computes {operation_words(card.flops)} in products" if card.flops else ""
