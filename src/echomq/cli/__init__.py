"""Floor 5, the terminal: `echomq worker`, `echomq server`, `echomq demo`."""


def main() -> None:
    """The `echomq` command; ends the process with its exit code."""
    # Imported when used, like every command: `echomq --version` loads none of them.
    from echomq.cli.program import run

    run()
