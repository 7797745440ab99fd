"""`python -m kbevolve` is the command `kbevolve`."""

from kbevolve.evolve.cli.main import main

main()
