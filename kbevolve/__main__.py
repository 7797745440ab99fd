"""`python -m kbevolve` is the command `kbevolve`."""

from kbevolve.evolve.cli import main

main()
