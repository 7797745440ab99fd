"""What search laws are compared on: landscapes with known speeds, and an llm that is shaped like a language model.

Nothing here compiles or times a kernel. `landscape` says what a landscape is; `ladder` (with `ladders`, the named ones)
and `measured` are the two kinds; `moves` is how one program becomes another; `operator` is the llm.
"""

from kbevolve.evolve.simulation.ladder import Ladder
from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Gene, Landscape, Program, ProgramFailure, ProgramOutcome, SimulatedIdea
from kbevolve.evolve.simulation.measured import MeasuredLandscape, parse_landscape, read_landscape
from kbevolve.evolve.simulation.simulated_llm import Draft, SimulatedLLM, Task, judge

__all__ = [
    "LADDERS",
    "Draft",
    "Gene",
    "Ladder",
    "Landscape",
    "MeasuredLandscape",
    "Program",
    "ProgramFailure",
    "ProgramOutcome",
    "SimulatedIdea",
    "SimulatedLLM",
    "Task",
    "find_ladder",
    "judge",
    "parse_landscape",
    "read_landscape",
]
