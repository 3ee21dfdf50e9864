"""`python -m echomq.cli`, where the `echomq` command is not on the path."""

from echomq.cli import main

main()
