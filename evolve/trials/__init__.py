"""What search laws are compared on: landscapes with known speeds, and an author that is shaped like a language model.

Nothing here compiles or times a kernel. `landscape` says what a landscape is; `ladder` (with `ladders`, the named ones)
and `measured` are the two kinds; `moves` is how one program becomes another; `operator` is the author.
"""

from kbevolve.evolve.trials.ladder import Ladder
from kbevolve.evolve.trials.ladders import LADDERS, find_ladder
from kbevolve.evolve.trials.landscape import Failure, Gene, Idea, Landscape, Outcome, Program
from kbevolve.evolve.trials.measured import MeasuredLandscape, parse_landscape, read_landscape
from kbevolve.evolve.trials.operator import Author, Draft, Task, judge

__all__ = [
    "LADDERS",
    "Author",
    "Draft",
    "Failure",
    "Gene",
    "Idea",
    "Ladder",
    "Landscape",
    "MeasuredLandscape",
    "Outcome",
    "Program",
    "Task",
    "find_ladder",
    "judge",
    "parse_landscape",
    "read_landscape",
]
