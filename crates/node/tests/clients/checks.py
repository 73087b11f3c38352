"""What the scripts beside this one say when an answer is wrong."""

import sys


def check(what, got, expected):
    if got != expected:
        sys.exit(f"{what}: expected {expected!r}, got {got!r}")


def refused(what, error, call, text=""):
    """Has `call` fail with an `error` that says `text`."""
    try:
        got = call()
    except error as refusal:
        if text not in str(refusal):
            sys.exit(f"{what}: expected {text!r}, got {refusal}")
        return
    sys.exit(f"{what}: expected {error.__name__}, got {got!r}")
