"""Measure kernels of the archive again, without a model: which speedups hold on this device, and which do not.

Every new measurement is added to the archive; none replaces an earlier one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kbevolve.archive.formatting import as_times, interval_words, over_eager, verdict_words
from kbevolve.archive.records import Confirmation, Evaluation, Kernel, Run, Timing, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.evaluator import Evaluator

#: The share by which a speedup may be lower on another host or card of the same model. Those of ten kernels on three
#: H200s differed by up to 1.7 % (examples/kernels, 2026-11-27).
_BETWEEN_CARDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A kernel and what the archive says about its speed."""

    kernel: Kernel
    problem: Problem
    #: A run that created the kernel: it gives the lineage and says how to measure.
    run: Run
    #: The first evaluation on this device, None without one.
    then: Evaluation | None = None
    #: The published confirmation, when this kernel is the champion of the run on this device.
    confirmation: Confirmation | None = None
    #: Device fingerprint -> the first evaluation there, for the other devices on which the kernel was correct.
    elsewhere: Mapping[str, Evaluation]

    @property
    def measured(self) -> Confirmation | Timing | None:
        """The speedup over eager on this device: the confirmed one where there is one; None without a speedup."""
        timing = self.then.timing if self.then and self.then.timing.speedup is not None else None
        return self.confirmation or timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A claim and its new measurement."""

    claim: Claim
    now: Evaluation
    #: Why the claim does not hold; "" when it does.
    doubt: str


def claim_of(archive: Archive, kernel: Kernel, run: Run, device: Device) -> Claim:
    """What the archive says about a kernel on the problem of a run, under the conditions of the run."""
    precision = evaluation_settings(run).precision
    then: Evaluation | None = None
    elsewhere: dict[str, Evaluation] = {}
    for one in archive.kernels.evaluations(kernel.id):
        if (one.problem, one.precision) == (run.problem, precision):
            if one.device == device.fingerprint:
                then = then or one
            elif one.verdict is Verdict.CORRECT:
                elsewhere.setdefault(one.device, one)
    champion = archive.runs.champion(run.id) if run.device == device.fingerprint else None
    return Claim(
        kernel=kernel,
        problem=archive.problems.get(run.problem),
        run=run,
        then=then,
        confirmation=champion if champion and champion.kernel == kernel.id else None,
        elsewhere=elsewhere,
    )


def claims_of(archive: Archive, names: Sequence[str], device: Device, *, top: int) -> list[Claim]:
    """The claims of kernels, and of the best kernels of runs.

    Args:
        archive: where they are.
        names: ids of kernels and runs, or unique starts of them; "latest" is the newest run.
        device: where they are measured.
        top: so many kernels of each run, the published one first, then by the lower end of the speedup's interval.

    Raises:
        ArchiveError: there is no such kernel or run, a kernel was only evaluated, or a run has no correct kernel.
    """
    found: dict[tuple[str, str], Claim] = {}
    for name in names:
        one = archive.find(name)
        kernels = [one] if isinstance(one, Kernel) else _best(archive, one, top)
        for kernel in kernels:
            run = birth_run(archive, kernel) if isinstance(one, Kernel) else one
            found.setdefault((kernel.id, run.problem), claim_of(archive, kernel, run, device))
    return list(found.values())


def verify(archive: Archive, claims: Sequence[Claim], device: Device) -> Iterator[Verified]:
    """Measure the kernels again, one problem after another, and add each evaluation to the archive.

    Raises:
        EvaluatorError: the judge does not work on this machine.
    """
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        key = (evaluation_settings(claim.run).model_dump_json(), claim.problem.id)
        groups.setdefault(key, []).append(claim)
    for group in groups.values():
        settings = evaluation_settings(group[0].run)
        with plain_judge(device, settings) as judge:
            for claim in group:
                now = judge.evaluate(claim.problem, claim.kernel)
                archive.add_evaluation(now)
                yield Verified(claim=claim, now=now, doubt=doubt(claim, now, settings.tie))


def doubt(claim: Claim, now: Evaluation, tie: float) -> str:
    """Why a new measurement does not confirm a claim; "" when it does.

    The speedup must reach the claimed one: the intervals overlap, but for `tie`, the share that is noise between
    processes, or for what cards of one model differ by. On a device without an earlier measurement a kernel that is
    faster than eager elsewhere must not be slower than eager.
    """
    if now.verdict is not Verdict.CORRECT:
        return f"{verdict_words(now.verdict)} this time" + (f": {now.message}" if now.message else "")
    timing, before = now.timing, claim.measured
    assert timing.speedup is not None, "correct, so timed"
    assert timing.speedup_high is not None
    reached = timing.speedup_high * (1 + (max(tie, _BETWEEN_CARDS) if _on_another_card(claim, now) else tie))
    if before is not None:
        assert before.speedup is not None, "see `Claim.measured`"
        assert before.speedup_low is not None
        if reached < before.speedup_low:
            return f"{_words(timing)} now, {_words(before)} before"
    elif claim.then is None:
        faster = [one for one in claim.elsewhere.values() if (one.timing.speedup_low or 0.0) > 1]
        if faster and reached < 1:
            here = over_eager(_words(timing), timing.speedup)
            return f"{here} here, {_words(faster[0].timing)} on {faster[0].device}"
    return ""


def _on_another_card(claim: Claim, now: Evaluation) -> bool:
    """Whether host or number of the device differ, as far as both are known."""
    cards = {one.execution.device_instance for one in (claim.then, now) if one is not None}
    return len(cards) == 2 and "" not in cards


def plain_judge(device: Device, settings: EvaluationSettings) -> AbstractContextManager[Evaluator]:
    """The judge of published kernels: it builds exactly as torch itself does."""
    from kbevolve.evaluators.judging.judge import Judge  # brings torch

    return Judge(device, settings, plain=True)


def evaluation_settings(run: Run) -> EvaluationSettings:
    """How a run measures. The other settings are not read: they may be of another version."""
    return Settings.from_tree({"evaluation": json.loads(run.settings).get("evaluation", {})}).evaluation


def birth_run(archive: Archive, kernel: Kernel) -> Run:
    """The first run that created a kernel.

    Raises:
        ArchiveError: none did.
    """
    for birth in archive.kernels.births(kernel.id):
        return archive.runs.get(birth.run)
    raise ArchiveError(
        f"no run created kernel {kernel.id}; it was only evaluated: kbevolve archive show {kernel.id} --source > "
        "kernel.py, then kbevolve evaluate kernel.py --problem NAME"
    )


def _best(archive: Archive, run: Run, top: int) -> list[Kernel]:
    champion, failed = archive.runs.champion(run.id), archive.runs.failed(run.id)
    correct = [
        one
        for one in archive.runs.evaluations(run.id).values()
        if one.verdict is Verdict.CORRECT and one.kernel not in failed and one.compiled.identical_to is None
    ]
    if not correct:
        raise ArchiveError(f"run {run.id} has no correct kernel; see what failed: kbevolve archive ls {run.id}")
    published = champion.kernel if champion else None
    correct.sort(key=lambda one: (one.kernel != published, -(one.timing.speedup_low or 0.0)))
    return [archive.kernels.get(one.kernel) for one in correct[:top]]


def _words(measured: Confirmation | Timing) -> str:
    assert measured.speedup is not None
    assert measured.speedup_low is not None
    assert measured.speedup_high is not None
    return f"{as_times(measured.speedup)} {interval_words(measured.speedup_low, measured.speedup_high)}"
