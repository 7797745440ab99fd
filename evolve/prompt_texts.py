"""The prompts: Jinja2 templates in `prompts/`, and what of a brief is shown in them.

A prompt shows what a person would want who has to write the kernel: the problem, the device, the parent with its
measured speedup, what was tried and what failed. It never shows seeds, tolerances or how inputs are varied: those
are the judge's secrets. Contexts are kept small; the numbers below say how small.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kbevolve.archive.records import Backend, Idea, Operator, ProblemCard
from kbevolve.configs.playbook import OTHER, Playbook, PlaybookIdea
from kbevolve.configs.settings import Precision
from kbevolve.evaluators.feedback.message import feedback, performance, standing
from kbevolve.evolve.brief import Brief, Failure
from kbevolve.evolve.cards import prompt_lines
from kbevolve.islands.island import Member

#: Failures shown, and characters of each: enough to name the mistake, too little to imitate it.
SHOWN_FAILURES = 5
FAILURE_LENGTH = 160

#: Ideas shown with what came of them, the newest.
SHOWN_TRIED = 20

#: Longest kernel shown as an inspiration, characters (about 2500 tokens); a longer one would drown the parent.
INSPIRATION_LENGTH = 8000

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
    def of(cls, member: Member, card: ProblemCard | None = None) -> "Shown":
        """A correct kernel with its measured speedup."""
        return cls(
            source=member.kernel.source,
            standing=standing(member.evaluation),
            performance=tuple(performance(member.evaluation, card)),
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
        return _render("system", device=brief.device, device_type=brief.device_type, precision=self.precision)

    def ideas(self, brief: Brief, shortlist: Sequence[PlaybookIdea]) -> str:
        """Stage one."""
        return _render(
            "ideas",
            **_problem(brief),
            **_parent(brief),
            edited=edited(brief),
            languages=" or ".join(LANGUAGES[backend] for backend in backends(brief)),
            failures=signatures(brief.failures),
            tried=[tried_line(idea, gain) for idea, gain in list(brief.tried.items())[-SHOWN_TRIED:]],
            playbook=shortlist,
            techniques=self._techniques(brief.device_type),
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
            "cross", **_writing(brief), crossed=[Shown.of(parent, brief.card) for parent in brief.parents[:2]]
        )

    def repair_task(self, brief: Brief, failure: Failure) -> str:
        """The task as it stood before the failed file, for the first turn of a repair."""
        return _render(
            "repair_task",
            **_problem(brief),
            device=brief.device,
            idea=failure.idea,
            backends=(failure.kernel.backend,),
            skeleton=False,
        )

    def repair(self, failure: Failure) -> str:
        """What is wrong with the failed file, and the wish for a repair."""
        return _render(
            "repair",
            verdict=failure.evaluation.verdict.name.lower().replace("_", " "),
            message=feedback(failure.evaluation),
            idea=failure.idea,
        )

    def again(self, complaint: str) -> str:
        """The follow-up to an answer that could not be used."""
        return _render("again", complaint=complaint)

    def _techniques(self, device_type: str) -> dict[str, str]:
        """What an idea may be filed under on a device; other values and crossings have operators of their own."""
        known = {idea.technique for idea in self.playbook.ideas if device_type in idea.devices} | {OTHER}
        return {slug: meaning for slug, meaning in self.playbook.techniques.items() if slug in known}


def edited(brief: Brief) -> bool:
    """Whether the child is made by edits. A parent that writes no kernel of its own offers nothing to edit."""
    return (
        brief.operator is Operator.MUTATE and bool(brief.parents) and brief.parents[0].kernel.backend != Backend.TORCH
    )


def backends(brief: Brief) -> tuple[Backend, ...]:
    """What the child is written in: an edit and a crossing stay with their parents, a rewrite is free."""
    if edited(brief) or brief.operator is Operator.CROSS:
        own = tuple(dict.fromkeys(parent.kernel.backend for parent in brief.parents))
        return tuple(backend for backend in own if backend != Backend.TORCH) or DEVICE_BACKENDS[brief.device_type]
    return DEVICE_BACKENDS[brief.device_type]


def signatures(failures: Sequence[Failure]) -> list[str]:
    """One short line for each kind of failure, the newest first, with how often it was met."""
    counts: Counter[str] = Counter()
    for failure in failures:
        found = failure.evaluation
        line = next((line.strip() for line in found.message.splitlines() if line.strip()), "")
        idea = f" (idea: {failure.idea.title})" if failure.idea else ""
        counts[f"{found.verdict.name.lower().replace('_', ' ')}: {line[:FAILURE_LENGTH]}{idea}"] += 1
    lines = list(counts.items())[:SHOWN_FAILURES]
    return [f"{line}{f' [{count} times]' if count > 1 else ''}" for line, count in lines]


def tried_line(idea: Idea, gain: float | None) -> str:
    """An idea and the best that came of it."""
    came = "no working kernel" if gain is None else f"{gain:.2f} times its parent's speed"
    return f"{idea.title} ({idea.technique}): {came}"


def _problem(brief: Brief) -> dict[str, Any]:
    source = brief.problem.source_for(brief.device_type)
    return {
        "problem_name": brief.problem.name,
        "problem_source": source,
        "reduced": source != brief.problem.source,
        "card": prompt_lines(brief.card) if brief.card else [],
    }


def _parent(brief: Brief) -> dict[str, Any]:
    return {
        "parent": Shown.of(brief.parents[0], brief.card) if brief.parents else None,
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
        "device": brief.device,
        "backends": backends(brief),
        "edited": edited(brief),
        "skeleton": not edited(brief),
        "inspiration": Shown.of(inspiration, brief.card) if inspiration else None,
        "failures": signatures(brief.failures),
    }


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
    loader=PackageLoader("kbevolve.evolve", "prompts"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,
    keep_trailing_newline=True,
)
