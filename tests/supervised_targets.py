"""What supervised processes run in tests: importable, as a target must be."""

import os
import select
import signal
import sys
import threading
import time


def echo(channel, greeting="hello"):
    """Say who it is, then send every message back until it is told to end."""
    channel.send({"event": "ready", "greeting": greeting, "pid": os.getpid()})
    channel.listen(lambda message: channel.send({"event": "echo", "message": message}))
    while True:
        signal.pause()


def end_with(channel, code):
    channel.send({"event": "ready"})
    sys.exit(code)


def fail(channel):
    raise ValueError("seven is not prime enough")


def never_report(channel):
    threading.Event().wait()


def ignore_sigterm(channel):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send({"event": "ready"})
    while True:
        time.sleep(60)  # until it is killed


def count_until_told(channel):
    """Wait for a message, then count that far, and end."""
    told = threading.Event()
    goal = []

    def take(message):
        goal.append(message)
        told.set()

    channel.listen(take)
    channel.send({"event": "ready"})
    told.wait()
    for number in range(goal[0]):
        channel.send({"event": "count", "number": number})


def fail_when_told(channel):
    told = threading.Event()
    channel.listen(lambda message: told.set())
    channel.send({"event": "ready"})
    told.wait()
    raise RuntimeError("told to fail")


def report_when_alone(channel, supervisor, fails):
    """Send an event once the supervisor, a process, is gone; then fail, or stay."""
    watched = os.pidfd_open(supervisor)
    channel.send({"event": "ready"})
    select.select([watched], [], [])
    channel.send({"event": "alone"})
    if fails:
        raise RuntimeError("left alone")
    while True:
        signal.pause()


def leave_a_grandchild(channel):
    """End, while a process that it forked holds all its pipes open."""
    grandchild = os.fork()
    if grandchild == 0:
        time.sleep(600)
        os._exit(0)
    channel.send({"event": "ready", "grandchild": grandchild})
