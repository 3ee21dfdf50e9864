"""Which app is under test."""

import pytest
from tasks import mq, outbox

from echomq import EchoMQ


@pytest.fixture
def echomq_app() -> EchoMQ:
    outbox.clear()
    return mq
