"""`python -m echomq`, which is `echomq` where the folder of scripts is not on PATH."""

from echomq.cli import main

main()
