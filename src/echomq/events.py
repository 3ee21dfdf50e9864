"""The events of a queue (protocol §10): `events(conn, queue)`, awaited or blocking, by the connector's kind."""

from echomq.runtime.listening import AsyncEvents, Event, Events, events

__all__ = ["AsyncEvents", "Event", "Events", "events"]
