"""The first program: a job, and a way to send it.

python examples/quickstart.py                       sends three greetings
echomq worker examples.quickstart:mq --burst        runs them
"""

from echomq import EchoMQ

mq = EchoMQ()  # the server that comes with EchoMQ; EchoMQ("valkey://host:6379/0") for one of your own


@mq.job
def greet(name: str) -> None:
    print(f"Hello, {name}!")


if __name__ == "__main__":
    greet.enqueue("world")
    greet.enqueue("you")
    greet.after(seconds=2).enqueue("you, two seconds later")
    print("Three greetings are waiting. Run them with:  echomq worker examples.quickstart:mq")
