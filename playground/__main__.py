"""Runs the command line: ``python -m playground``."""

import sys

from playground.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
