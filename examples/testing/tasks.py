"""An app, to be tested by the file beside this one."""

from datetime import timedelta

from echomq import Cron, EchoMQ, Exponential, current_job

mq = EchoMQ()
outbox: list[str] = []


@mq.job(queue="mail", max_attempts=3, backoff=Exponential(base=60_000, cap=3_600_000))
async def send(to: str, subject: str = "Hello") -> str:
    if "@" not in to:
        raise ValueError(f"{to!r} is no address")
    outbox.append(f"{subject}: {to}")
    return to


@mq.job
def sign_up(name: str) -> None:
    send.enqueue(f"{name}@example.org", "Welcome")
    send.after(timedelta(days=7)).options(lane="reminders").enqueue(f"{name}@example.org", "How are you?")


@mq.job(schedule=Cron("30 2 * * *", name="nightly", tz="Europe/Berlin"))
def report() -> None:
    slot = current_job().slot
    assert slot is not None
    outbox.append(f"report of {slot:%d %B}")
