"""How a kernel came to be, step by step from a starting kernel: the idea, the change, the gain, why it was kept."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from kbevolve.archive.champion import FINAL
from kbevolve.archive.formatting import as_times, interval_words
from kbevolve.archive.lineage import main_line
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Comparison, Confirmation, Idea, Operator, Placement, Verdict
from kbevolve.archive.run_queries import precision_of
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.evolve.state.knowledge import Gain
from kbevolve.evolve.web.code import changes
from kbevolve.evolve.web.progress import gain_over
from kbevolve.evolve.web.snapshot import RunFacts
from kbevolve.islands.niches import LEVELS

#: Steps of a story.
MOST_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryStep:
    """One kernel of the line."""

    entry: OutlineEntry
    idea: Idea | None
    #: Over its main parent; None for a starting kernel, and where one of both failed.
    gain: Gain | None
    #: The diff from its main parent, highlighted; empty for a starting kernel.
    diff: tuple[Markup, ...]
    #: Lines added and removed.
    added: int
    removed: int
    #: What the judge said about a failure; "" for none.
    message: str
    #: Sentences.
    kept_because: tuple[str, ...]
    #: Whether it carries out the idea of the step before it once more.
    again: bool
    #: Smaller steps between the one before and this one that are not shown.
    left_out: int

    @property
    def title(self) -> str:
        """The idea, or what was done without one."""
        if self.again:
            return "Repaired" if self.entry.operator is Operator.REPAIR else "The same idea again"
        if self.idea is not None and self.idea.title:
            return self.idea.title
        return self.entry.note or self.entry.operator.value


def story(archive: Archive, facts: RunFacts, kernel: str) -> list[StoryStep]:
    """The line of main parents of a kernel of a run, the starting kernel first. Empty without an attempt of it."""
    line: list[OutlineEntry] = list(reversed(main_line(kernel, facts.entries)))
    ideas, placements = archive.runs.ideas(facts.run.id), archive.runs.placements(facts.run.id)
    confirmations = archive.runs.confirmations(facts.run.id)
    told, left_out = _told(line), 0
    steps: list[StoryStep] = []
    for before, entry in zip([None, *line], line, strict=False):
        if entry not in told:
            left_out += 1
            continue
        diff = changes(_source(archive, before.kernel), _source(archive, entry.kernel)) if before else ()
        plain = [str(row.striptags()) for row in diff]
        steps.append(
            StoryStep(
                entry=entry,
                idea=ideas.get(entry.idea),
                gain=gain_over(entry, before),
                diff=diff,
                added=sum(row.startswith("+") for row in plain),
                removed=sum(row.startswith("-") for row in plain),
                message=_message(archive, facts, entry),
                again=bool(before and entry.idea and before.idea == entry.idea),
                kept_because=tuple(_reasons(entry, before, placements, confirmations)),
                left_out=left_out,
            )
        )
        left_out = 0
    return steps


def _told(line: Sequence[OutlineEntry]) -> set[OutlineEntry]:
    """The steps of a line that are shown: all, or the ends and those of the largest gains."""
    gains = {entry: gain for before, entry in pairwise(line) if (gain := gain_over(entry, before))}
    largest = sorted(gains, key=lambda entry: -gains[entry].factor)
    return set(line) if len(line) <= MOST_STEPS else {line[0], line[-1], *largest[: MOST_STEPS - 2]}


def _source(archive: Archive, kernel: str | None) -> str:
    try:
        return archive.kernels.get(kernel or "").source
    except ArchiveError:
        return ""  # another program has removed it


def _message(archive: Archive, facts: RunFacts, entry: OutlineEntry) -> str:
    if entry.verdict in (None, Verdict.CORRECT) or entry.kernel is None:
        return ""
    run = facts.run
    evaluation = archive.kernels.evaluation(entry.kernel, run.problem, run.device, precision_of(run))
    return evaluation.message if evaluation else ""


def _niche_words(niche: str) -> str:
    """``asynchronous or streaming, matrix units, …`` for m3c3d2l2; the key itself where it is none."""
    if not re.fullmatch(r"m[0-3]c[0-3]d[0-3]l[0-3]", niche):
        return niche
    memory, compute, decomposition, launches = map(int, niche[1::2])
    words = LEVELS["memory"][memory], LEVELS["compute"][compute], LEVELS["decomposition"][decomposition]
    return f"{', '.join(words)}; launches: {LEVELS['launches'][launches]}"


def _reasons(
    entry: OutlineEntry,
    parent: OutlineEntry | None,
    placements: Sequence[Placement],
    confirmations: Sequence[Confirmation],
) -> Iterator[str]:
    if entry.verdict is not Verdict.CORRECT:
        yield "The judge's message went into the next attempt."
        return
    if entry.operator is Operator.SEED:
        yield "It is a starting kernel."
    elif parent is not None and parent.verdict is not Verdict.CORRECT:
        yield "It repaired a kernel that failed."
    for one in (one for one in confirmations if one.kernel == entry.kernel):
        rival = "eager" if one.rival is None else "the champion" if one.rival != one.kernel else "itself"
        words = f"{as_times(one.ratio)} {interval_words(one.ratio_low, one.ratio_high)} the speed of {rival}"
        contest = "the final" if one.purpose == FINAL else f"a contest after generation {one.generation}"
        won = {Comparison.FASTER: "won", Comparison.TIE: "tied in", Comparison.SLOWER: "lost"}[one.comparison]
        yield f"Measured again in fresh processes it {won} {contest}: {words}."
    places = [one for one in placements if one.kernel == entry.kernel]
    if places and places[0].via == "birth":
        yield f"It was the best of its niche on island {places[0].island} ({_niche_words(places[0].niche)})."
    for entered in places:
        if entered.via != "birth":
            way = "It migrated to" if entered.via == "migration" else "With it was restarted"
            yield f"{way} island {entered.island} after generation {entered.generation}."
