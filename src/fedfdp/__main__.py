"""`python -m fedfdp` is the command `fedfdp`."""

from fedfdp.cli.main import main

main()
