"""The exported file: a self-contained ModelNew with its provenance in a comment block on top.

`archive.identity` drops comments, so the exported file has the id of the kernel, and its measurement is found in the
archive.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kbevolve import __version__
from kbevolve.archive.formatting import launching_fields
from kbevolve.archive.records import Birth, Confirmation, Evaluation, Kernel, Run, Timing

#: First and last line of the block. An older block is replaced when a file is exported again.
_FIRST = "# Exported by kbevolve"
PROVENANCE_END = "# ---- end of provenance ----"
#: Characters of a note in a lineage line: the line then fits an editor of 120 columns.
_NOTE_WIDTH = 72


def exported_source(
    kernel: Kernel,
    evaluation: Evaluation,
    *,
    run: Run,
    device: str,
    line: Sequence[Birth],
    speedups: Mapping[str, float | None],
    command: str,
    moment: datetime,
    confirmation: Confirmation | None = None,
) -> str:
    """The whole text of an exported file.

    Args:
        kernel: what is exported.
        evaluation: the measurement made for this export; CORRECT.
        run: the run it belongs to.
        device: one line about the device.
        line: `archive.lineage.main_line` of the kernel.
        speedups: kernel id to speedup over eager as the run measured it, for the ancestors.
        command: the command that repeats the measurement.
        moment: when the measurement was made.
        confirmation: the confirmation of this kernel, when it is the champion.
    """
    timing = evaluation.timing
    shown_device = device if device == evaluation.device else f"{device} ({evaluation.device})"
    fields = {
        "problem": f"{run.problem_name} (text {run.problem})",
        "kernel": f"{kernel.id}, {kernel.backend.value}",
        "run": f"{run.id}, seed {run.seed}" + (f", generation {line[0].generation}" if line else ""),
        "device": shown_device,
        "verdict": _verdict(evaluation),
        "speedup": _speedup(timing),
        "times": f"{timing.time_ms:.4g} ms; eager {timing.reference_ms:.4g} ms in the same rounds",
        **(
            {"confirmed": f"{_speedup(confirmation)}, in the {confirmation.purpose} of its run"} if confirmation else {}
        ),
        **launching_fields(evaluation),
        "measured": f"{moment:%Y-%m-%d %H:%M} UTC",
        "again with": command,
    }
    header = [f"{_FIRST} {__version__} on {moment:%Y-%m-%d}; the kernel follows this block.", "#"]
    header += [f"# {name:<12}{_flat(value)}" for name, value in fields.items() if value]
    if line:
        header += ["#", "# lineage, newest first; speedups of first evaluations:"]
        header += [f"#   {_step(birth, speedups)}" for birth in line]
    return "\n".join([*header, PROVENANCE_END, "", without_header(kernel.source).strip("\n"), ""])


def without_header(source: str) -> str:
    """The source without the block of an earlier export; a file without one is returned as it is."""
    lines = source.split("\n")
    if lines[0].startswith(_FIRST) and PROVENANCE_END in lines:
        return "\n".join(lines[lines.index(PROVENANCE_END) + 1 :])
    return source


def _flat(text: str) -> str:
    """One printable line: text after a line end in a note would be code outside the comment."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def _verdict(evaluation: Evaluation) -> str:
    text = f"{evaluation.verdict.name}, asked for {evaluation.precision}"
    if evaluation.accuracy.error is not None:
        text += f"; error {evaluation.accuracy.error:.1e} against the fp64 truth"
        if evaluation.accuracy.reference_error is not None:
            text += f" (the reference's own: {evaluation.accuracy.reference_error:.1e})"
    return text


def _speedup(measured: Timing | Confirmation) -> str:
    low, high = measured.speedup_low, measured.speedup_high
    return f"{measured.speedup:.3f} times PyTorch eager, 95 % interval {low:.3f} to {high:.3f}"


def _step(birth: Birth, speedups: Mapping[str, float | None]) -> str:
    speedup = speedups.get(birth.kernel or "")
    crossed = f", crossed with {', '.join(birth.parents[1:])}" if len(birth.parents) > 1 else ""
    note = _flat(birth.note + crossed)
    line = f"{birth.kernel}  g{birth.generation:<4} {birth.operator.value:<8} "
    line += f"{speedup:7.3f}x  " if speedup is not None else "      -   "
    return line + (note if len(note) <= _NOTE_WIDTH else f"{note[: _NOTE_WIDTH - 1]}…")
