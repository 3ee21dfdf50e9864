"""The example of results runs as it is, and says what its jobs returned."""

from __future__ import annotations

from support.examples import said
from support.servers import Server


def test_the_example_prints_what_its_jobs_returned(server: Server) -> None:
    assert said(server, "results") == [
        "a has 1",
        "bird has 4",
        "in has 2",
        "the has 3",
        "hand has 4",
        "not a word: ValueError: '42' is no word",
    ]
