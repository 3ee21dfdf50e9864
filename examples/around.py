"""What stands around a job: middleware, a database that the worker opens, and jobs that follow.

python examples/around.py                       sends two orders
echomq worker examples.around:mq --burst        runs them, and what follows
"""

import sqlite3
from collections.abc import Iterator

from echomq import Depends, EchoMQ, Failure, JobContext, Middleware, Success

mq = EchoMQ(default_queue="orders")


@mq.middleware
class Announce(Middleware):
    def before(self, job: JobContext) -> None:
        print(f"{job.name} begins")

    async def error(self, job: JobContext, error: BaseException) -> None:
        print(f"{job.name} has failed: {error}")


def database() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.execute("CREATE TABLE orders (item TEXT, pieces INT CHECK (pieces > 0))")
    yield db
    print("the database is closed")
    db.close()


@mq.job(name="receipt")
def receipt(told: Success) -> None:
    print(f"a receipt for {told.args}: order {told.result}")


@mq.job(name="apology")
async def apology(told: Failure) -> None:
    print(f"an apology for {told.args}")


@mq.job(name="order", max_attempts=1, on_success=receipt, on_dead=apology)
def order(item: str, pieces: int, db: sqlite3.Connection = Depends(database, scope="worker")) -> int:
    return db.execute("INSERT INTO orders VALUES (?, ?) RETURNING rowid", (item, pieces)).fetchone()[0]


if __name__ == "__main__":
    order.enqueue("tea", 2)
    order.enqueue("milk", 0)
    print("Two orders are waiting. Run them with:  echomq worker examples.around:mq")
