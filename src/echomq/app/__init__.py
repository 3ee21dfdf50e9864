"""Floor 4, the app: typed jobs, their payloads and the worker that runs them."""
