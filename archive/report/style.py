"""What all figures share: colours, axes of speedups, the caption, and the file they are written to.

matplotlib is imported when a figure is drawn, and without pyplot: no window system, no global state.
"""

import html
import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbevolve.configs.errors import ArchiveError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Formats by ending of the file's name.
FORMATS = (".png", ".svg", ".pdf")

#: Okabe and Ito's palette (2008) without its yellow, which is too pale on white: distinct for every colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
#: A second cue beside the colour, for print in grey.
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#1b1f24"
GREY = "#6b7280"
_PALE = "#d9dde3"

#: Spread of the speedups (largest over smallest) from which their axis is logarithmic: beyond about a decade a linear
#: axis shows nothing of the beginning.
_LOG_FROM = 8.0
#: Points from which a scatter is a picture within an SVG file: each would be an element of its own.
MANY = 2_000
#: Characters of 8.5 points that fit into a figure's width.
_CHARACTERS = 120
#: Inches of every figure.
_HEIGHT = 5.2
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a note is a dollar
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",  # text stays text: searchable, and the file is small
    "svg.hashsalt": "kbevolve",  # the same figure is the same file
}


def new_figure(width: float) -> "Figure":
    """An empty figure of a width in inches, with room for its caption on top."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, hspace=0.02, rect=(0, 0, 1, 1 - 0.68 / _HEIGHT))
    return Figure(figsize=(width, _HEIGHT), layout=layout)


def save(draw: Callable[[], "Figure"], file: Path) -> None:
    """Draw a figure in the style of all of them into a PNG, SVG or PDF file, by its ending.

    Raises:
        UsageError: another ending.
        ArchiveError: the file cannot be written.
    """
    check_format(file)
    try:
        file.write_bytes(drawn(draw, file.suffix.lower()))
    except OSError as error:
        raise ArchiveError(f"{file}: {error.strerror}; name a file in a directory that you may write to") from None


def svg_element(draw: Callable[[], "Figure"], label: str) -> str:
    """Draw a figure as an element of an HTML page, named for those who cannot see it."""
    text = drawn(draw, ".svg").decode()
    return text[text.index("<svg ") :].replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)


def drawn(draw: Callable[[], "Figure"], suffix: str) -> bytes:
    """A figure as a file with one of the endings."""
    import matplotlib

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A note in a script that the font lacks is drawn as boxes; that is no news for the terminal.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        figure, target = draw(), io.BytesIO()
        # matplotlib writes the moment into SVG and PDF files, which would make two equal figures differ.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
        figure.savefig(target, format=suffix[1:], dpi=160, metadata=metadata)
    return target.getvalue()


def check_format(file: Path) -> None:
    """Raises UsageError: the file's ending names nothing that can be drawn."""
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"{file}: cannot draw {file.suffix or 'a file without ending'}; end it in {', '.join(FORMATS)}"
        )


def draw_eager(axes: "Axes") -> None:
    """A line at the speed of eager, named in the legend: along the line there may be kernels anywhere."""
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1, label="eager")


def scale_speedups(axes: "Axes", speedups: Iterable[float]) -> None:
    """The upright axis: speedups over eager, logarithmic where they are far apart."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    shown = [speedup for speedup in speedups if speedup > 0]
    top, bottom = max([*shown, 1.0]), min([*shown, 1.0])
    if top / bottom > _LOG_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(bottom / 1.25, top * (top / bottom) ** 0.14)
    else:
        axes.set_ylim(0, top * 1.16)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.grid(axis="y", color=_PALE, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)


def caption(figure: "Figure", finding: str, details: str) -> None:
    """Two lines at the left; the second is smaller where it would not fit."""
    figure.text(0.012, 1 - 0.10 / _HEIGHT, finding, va="top", fontsize=13, fontweight="bold")
    fontsize = max(6.0, 8.5 * min(1.0, _CHARACTERS / max(1, len(details))))
    figure.text(0.012, 1 - 0.40 / _HEIGHT, details, va="top", fontsize=fontsize, color=GREY)
