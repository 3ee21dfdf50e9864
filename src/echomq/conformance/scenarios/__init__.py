"""The scenarios, a file a family; each says its contract in a sentence and cites none of our code."""
