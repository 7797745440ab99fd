"""What search laws are compared on: landscapes with known speeds, and an author that is shaped like a language model.

Nothing here compiles or times a kernel. `landscape` says what a landscape is; `ladder` (with `ladders`, the named ones)
and `measured` are the two kinds; `moves` is how one program becomes another; `operator` is the author.
"""

from kbevolve.evolve.simulation.author import Author, Draft, Task, judge
from kbevolve.evolve.simulation.ladder import Ladder
from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Failure, Gene, Idea, Landscape, Outcome, Program
from kbevolve.evolve.simulation.measured import MeasuredLandscape, parse_landscape, read_landscape

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
