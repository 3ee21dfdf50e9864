"""Floor 0, identity: branded ids that sort by the instant of their mint (protocol §1)."""

from echomq.identity.branded import BrandedId, check, check_job, encode, parse, unix_ms
from echomq.identity.errors import EchoMQError, IdError, InvalidInputError
from echomq.identity.minter import Minter, mint
from echomq.identity.snowflake import EPOCH_MS, Snowflake

__all__ = [
    "EPOCH_MS",
    "BrandedId",
    "EchoMQError",
    "IdError",
    "InvalidInputError",
    "Minter",
    "Snowflake",
    "check",
    "check_job",
    "encode",
    "mint",
    "parse",
    "unix_ms",
]
