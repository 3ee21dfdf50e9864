"""Random commands, sound and hostile, leave a live server up and sound (`make storm` sends a million)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.servers import Kind, Server
from support.storm import Storm, StormError, run

COMMANDS = 20_000


@pytest.mark.deadline(120)
def test_a_server_stays_up_and_sound_in_a_storm(kind: Kind, start_server: Callable[..., Server]) -> None:
    with Storm(start_server(kind, module=True), seed=1) as storm:
        run(storm, COMMANDS)
    assert storm.tally.sent >= COMMANDS
    assert storm.tally.native > COMMANDS / 2
    assert storm.tally.looks >= 2
    assert {"EMQSTALE", "EMQSTATE", "EMQKIND", "ERR", "WRONGTYPE"} <= set(storm.tally.refused)


def test_a_breach_and_a_server_that_is_gone_are_told(kind: Kind, start_server: Callable[..., Server]) -> None:
    server = start_server(kind, module=True)
    with Storm(server, seed=1) as storm:
        storm.sound(500)
        with server.client() as client:
            client.execute("ZADD", "emq:{q}:pending", 0, "JOB0NgWEfAEJfz")
            with pytest.raises(StormError, match="not sound:\nq: JOB0NgWEfAEJfz is in pending and has no row"):
                storm.look()
            client.execute("FLUSHALL")
        server.kill9()
        with pytest.raises(StormError, match=r"(?s)the server is gone: .*\nthe last flight: \[\("):
            storm.garbage(1_000)
