"""Lets `python -P -m backend.cli` be the `specdeck` command."""

from backend.cli import main

main()
