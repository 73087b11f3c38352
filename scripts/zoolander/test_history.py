#!/usr/bin/env python3
"""Tests of the checks of histories: bad ones are found, good ones are not reported."""

import tempfile
import unittest

import history


def write(client, key, number, at, outcome="acknowledged", store="s", kind="put", takes=1):
    value = None if kind == "delete" else f"{key} {number} {client}"
    own = {"store": store, "client": client, "has_session": True, "kind": kind, "begun": at, "ended": at + takes}
    return {**own, "key": key, "number": number, "value": value, "outcome": outcome}


def read(client, at, last=False, takes=1, **values):
    """Returns a read of keys, whose values are those of writes."""
    values = {key: value and value["value"] if isinstance(value, (dict, type(None))) else value for key, value in values.items()}
    own = {"store": "s", "client": client, "has_session": client != "stranger", "kind": "read", "begun": at, "ended": at + takes}
    return {**own, "keys": list(values), "values": list(values.values()), "last": last}


FIRST, SECOND = write("w", "k", 1, 0), write("w", "k", 2, 10)
REMOVAL = write("w", "k", 2, 10, kind="delete")


class Sessions(unittest.TestCase):
    def found(self, *records, ack="first", consistency="causal"):
        return len(history.check([dict(record) for record in records], ack, consistency))

    def test_writer_sees_its_own_acknowledged_writes(self):
        self.assertEqual(self.found(FIRST, SECOND, read("w", 12, k=FIRST)), 1)
        self.assertEqual(self.found(FIRST, SECOND, read("w", 12, k=FIRST), consistency="eventual"), 0)
        self.assertEqual(self.found(FIRST, SECOND, read("w", 12, k=SECOND), read("r", 12, k=FIRST)), 0)
        lost = write("w", "k", 2, 10, outcome="unknown")
        self.assertEqual(self.found(FIRST, lost, read("w", 12, k=FIRST), read("w", 14, k=lost)), 0)

    def test_session_does_not_go_back(self):
        back = [read("r", 12, k=SECOND), read("r", 14, k=FIRST)]
        self.assertEqual(self.found(FIRST, SECOND, *back), 1)
        self.assertEqual(self.found(FIRST, SECOND, *back, consistency="read-your-writes"), 0)
        self.assertEqual(self.found(FIRST, SECOND, read("r", 14, k=FIRST), read("r", 12, k=FIRST), read("r", 16, k=SECOND)), 0)

    def test_reader_sees_what_precedes_what_it_has_read(self):
        reply = write("r", "reply", 1, 14)
        chain = [FIRST, SECOND, read("r", 12, k=SECOND), reply, read("q", 16, reply=reply)]
        self.assertEqual(self.found(*chain, read("q", 18, k=FIRST)), 1)
        self.assertEqual(self.found(*chain, read("q", 18, k=SECOND), read("stranger", 18, k=FIRST)), 0)

    def test_read_after_an_acknowledgement_by_all_sees_the_write(self):
        records = [FIRST, SECOND, read("stranger", 12, k=FIRST)]
        self.assertEqual((self.found(*records, ack="all"), self.found(*records)), (1, 0))
        self.assertEqual(self.found(FIRST, SECOND, read("stranger", 10.5, k=FIRST), ack="all"), 0)

    def test_last_reads_see_all_acknowledged_writes(self):
        self.assertEqual(self.found(FIRST, SECOND, read("r", 20, last=True, k=FIRST)), 1)
        self.assertEqual(self.found(FIRST, SECOND, read("r", 20, last=True, k=None)), 1)
        self.assertEqual(self.found(FIRST, SECOND, read("r", 20, last=True, k=SECOND)), 0)

    def test_absence_needs_a_removal(self):
        self.assertEqual(self.found(FIRST, SECOND, read("w", 12, k=None)), 1)
        self.assertEqual(self.found(FIRST, REMOVAL, read("w", 12, k=None)), 0)
        self.assertEqual(self.found(FIRST, REMOVAL, read("w", 12, k=FIRST)), 1)

    def test_value_that_was_not_written_or_not_done_is_not_read(self):
        refused = write("w", "k", 2, 10, outcome="not_done")
        self.assertEqual(self.found(FIRST, refused, read("r", 12, k=refused)), 1)
        self.assertEqual(self.found(FIRST, refused, read("r", 10.5, k=refused), read("w", 12, k=FIRST)), 0)
        self.assertEqual(self.found(FIRST, read("r", 12, k="k 7 w")), 1)
        self.assertEqual(self.found(FIRST, read("r", 12, other=FIRST)), 1)

    def test_failed_reads_and_shared_keys_are_not_judged(self):
        self.assertEqual(self.found(FIRST, read("w", 12, k=history.FAILED)), 0)
        shared = [write("w", "shared-0", 1, 0), write("v", "shared-0", 1, 2)]
        self.assertEqual(self.found(*shared, read("w", 12, **{"shared-0": shared[0]})), 0)


class Registers(unittest.TestCase):
    directory = tempfile.TemporaryDirectory()

    def found(self, *records):
        return len(history.check_with_porcupine(records, self.directory.name))

    def test_reads_follow_one_order_of_the_writes(self):
        other = write("v", "k", 1, 10)
        self.assertEqual(self.found(FIRST, other, read("r", 12, k=FIRST)), 1)
        self.assertEqual(self.found(FIRST, other, read("r", 12, k=other), read("q", 12, k=None)), 1)
        meanwhile = [write("v", "k", 1, 0.5), read("r", 12, k=FIRST), read("r", 14, k=FIRST)]
        self.assertEqual(self.found(FIRST, *meanwhile), 0)
        self.assertEqual(self.found(FIRST, *meanwhile[:2], read("r", 14, k=meanwhile[0])), 1)

    def test_writes_of_unknown_outcome_may_happen_later_or_never(self):
        put, removal = (write("v", "k", 1, 10, outcome="unknown", kind=kind) for kind in ("put", "delete"))
        for lost, seen in ((put, put), (removal, None)):
            self.assertEqual(self.found(FIRST, lost, read("r", 12, k=FIRST), read("r", 14, k=seen)), 0)
            self.assertEqual(self.found(FIRST, lost, read("r", 12, k=seen), read("r", 14, k=FIRST)), 1)
        refused = write("v", "k", 1, 10, outcome="not_done")
        self.assertEqual(self.found(FIRST, refused, read("r", 12, k=refused)), 1)


if __name__ == "__main__":
    unittest.main()
