"""Lets `python -m redrive.cli` start the command line; supervised workers are started this way."""

from redrive.cli.root import main

main()
