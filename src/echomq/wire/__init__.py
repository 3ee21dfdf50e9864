"""Floor 2, the wire: connectors that carry calls to a server, and the embedded server."""
