"""Searchers compared on landscapes with known speeds, with a simulated language model; nothing is compiled or timed.

It may import `state`, `proposers` and `strategies` of `evolve`. `landscape` defines what a landscape is; `ladder` (with
`ladders`, the named ones) and `measured` are the two kinds; `moves` turns one program into another; `simulated_llm`
writes the children; `episode` runs one search, and `tournament` compares searchers.
"""

from kbevolve.evolve.simulation.ladder import Ladder
from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Gene, Landscape, Program, ProgramFailure
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
    "SimulatedLLM",
    "Task",
    "find_ladder",
    "judge",
    "parse_landscape",
    "read_landscape",
]
