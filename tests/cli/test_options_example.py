"""The examples of options and of a codec run as they are, and say what became of their jobs."""

from __future__ import annotations

import re

from support.examples import said
from support.servers import Server


def test_the_example_of_options_shows_how_each_job_went_on(server: Server) -> None:
    lines = said(server, "options")
    assert lines[0] == "one job for both letters to dan: True"
    assert lines[1:4] == [
        "ada wrote 'hi' to bob in attempt 1, letters",
        "ada wrote 'hi' to busy in attempt 2, letters",
        "ada wrote 'where are you' to away in attempt 3, letters",
    ]
    assert "discarded: nobody has no letter box" in lines[4]
    assert lines[5:] == [
        "no one wrote 'hi' to carol in attempt 1, letters-late",
        "no one wrote 'news' to dan in attempt 1, letters",
    ]


def test_the_example_of_a_codec_stores_little_and_runs_all(server: Server) -> None:
    stored, counted = said(server, "codec")
    match = re.fullmatch(r"180,000 characters, (\S+) bytes of payload", stored)
    assert match is not None
    assert int(match[1].replace(",", "")) < 2_000
    assert counted == "40,000 words"
