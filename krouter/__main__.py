"""`python -m krouter`."""

from krouter.cli import main

main()
