"""Floor 4, the app: typed jobs and the worker that runs them."""
