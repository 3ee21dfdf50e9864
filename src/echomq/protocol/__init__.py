"""Floor 1, the protocol: keys, verbs as values, replies and errors; pure, without any I/O."""
