"""EchoMQ for Python: jobs that run on time, on Valkey or Redis."""

__version__ = "0.1.0"
