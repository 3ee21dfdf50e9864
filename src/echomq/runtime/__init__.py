"""Floor 3, the runtime: the loops that claim, promote, recur and recover."""
