"""Says of every answer whether it is the expected one: a line "ok - what" or "not ok - what: why"."""

import sys

_failed = False


def check(what, got, expected):
    """One answer that has to be `expected`."""
    global _failed
    if got == expected:
        print(f"ok - {what}", flush=True)
        return
    _failed = True
    print(f"not ok - {what}: expected {_short(expected)}, got {_short(got)}", flush=True)


def refused(what, errors, call, text=""):
    """One call that has to raise one of `errors`, with `text` in it."""
    try:
        got = call()
    except errors as error:
        return check(what, text in str(error) or str(error), True)
    check(what, got, errors)


def end():
    """Leaves with status 1 when an answer was wrong."""
    sys.exit(1 if _failed else 0)


def _short(value):
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "…"
