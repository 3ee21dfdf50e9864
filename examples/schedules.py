"""Jobs that come again: declared in code, registered by hand, looked at and run on demand.

python examples/schedules.py                        registers two by hand and lists them
echomq worker examples.schedules:mq                 fires them, and the ones that are declared
echomq repeats default                              looks at them from the terminal
"""

from datetime import UTC, datetime

from echomq import CatchUp, Cron, EchoMQ, Every, current_job

mq = EchoMQ()


@mq.job(schedule=Cron("30 2 * * *", tz="Europe/Berlin", overlap="skip"))
def tidy(days: int = 30) -> None:
    print(f"tidied what is older than {days} days")


@mq.job(schedule=Every(minutes=5, jitter=30))
async def ping() -> None:
    print("pinged")


@mq.job
def report(whom: str) -> None:
    print(f"report for {whom}, slot {current_job().slot:%H:%M:%S.%f}")


if __name__ == "__main__":
    # The grid of a period goes through its anchor; every slot that nobody served is made up for, ten at most.
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    seconds = report.every(seconds=1, name="seconds", anchor=midnight, catch_up=CatchUp.all(10))
    print("seconds:", seconds.register("ada").verdict.value)
    print(
        "mornings:", report.cron("0 9 * * mon-fri", name="mornings", tz="Europe/Berlin").register("bob").verdict.value
    )
    for each in mq.schedules():
        print(f"{each.name:<10} {each.line or each.every!s:<16} next at {each.next_run:%Y-%m-%d %H:%M:%S} UTC")
    report.every(seconds=1, name="seconds").run_now()
    print("One report is waiting. Run it with:  echomq worker examples.schedules:mq --burst")
