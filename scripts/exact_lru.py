#!/usr/bin/env python3
"""Computes the hits of an exact LRU on a cache2k trace, as a reference for a cache's hits.

    scripts/exact_lru.py TRACE --total-bytes N [--partitions N] [--accesses N]
                         [--check REPORT [--points X]]

Replays the trace look-aside (a get, and after a miss a set of a value of 100 bytes) through an
exact LRU cache for each of the partitions t00, t01, … with equal shares of the bytes or, without
--partitions, through one cache. Prints {"hits", "misses", "by_partition"} like `sherwood load
--json`. With --check, compares the result with such a report: exit status 1 unless the hits of
every partition are equal or, with --points, the total hits differ by at most so many percentage
points. The path `-` is standard input.

It shares no code with the engine: the charge is implemented from its documentation, and the
recency order is Python's ordered dictionary. 5,000,000 accesses take about 10 s.
"""

import argparse
import collections
import json
import lzma
import struct
import sys

# An object's key as stored: eight hexadecimal digits, without the prefix `t07/`, which the listener strips.
KEY_BYTES = 8
VALUE_BYTES = 100


def charge(key_bytes, value_bytes):
    """12 bytes for index and remembered keys, and the place that holds 24 bytes, key and value: rounded to 8 bytes up to
    256, then to a sixteenth of the power of two below, up to 1,024."""
    size = 24 + key_bytes + value_bytes
    step = 8 if size <= 256 else (1 << ((size - 1).bit_length() - 1)) // 16
    assert size <= 1024, "larger places divide a page, which no value here needs"
    return 12 + -(-size // step) * step


def accesses(path, limit):
    """Words of the trace: the object's type in the top five bits, the object in the others."""
    with lzma.open(path) as trace:
        packed = trace.read() if limit is None else trace.read(4 * limit)
    return (word for (word,) in struct.iter_unpack(">I", packed))


def replay(words, items_max, partition_of):
    """Returns [hits, misses] by object type; each partition's cache holds at most `items_max`."""
    caches = collections.defaultdict(collections.OrderedDict)
    counts = collections.defaultdict(lambda: [0, 0])
    for word in words:
        cache = caches[partition_of(word)]
        if word in cache:
            cache.move_to_end(word)
            counts[word >> 27][0] += 1
        else:
            counts[word >> 27][1] += 1
            cache[word] = None
            if len(cache) > items_max:
                cache.popitem(last=False)
    return counts


def report(counts):
    by_partition = {f"t{kind:02}": {"hits": h, "misses": m} for kind, (h, m) in sorted(counts.items())}
    total = {name: sum(counts[name] for counts in by_partition.values()) for name in ("hits", "misses")}
    return {**total, "hit_ratio": total["hits"] / max(1, sum(total.values())), "by_partition": by_partition}


def differences(exact, seen, points):
    """Describes the differences."""
    if seen["hits"] + seen["misses"] != exact["hits"] + exact["misses"]:
        yield f"{seen['hits'] + seen['misses']} look-ups instead of {exact['hits'] + exact['misses']}"
    if points is not None:
        off = 100 * (seen["hit_ratio"] - exact["hit_ratio"])
        if abs(off) > points:
            yield f"{off:+.3f} points from the exact hit ratio, more than {points}"
        return
    for name in sorted(exact["by_partition"].keys() | seen["by_partition"].keys()):
        wanted, found = exact["by_partition"].get(name), seen["by_partition"].get(name)
        if wanted != found:
            yield f"{name}: {found} instead of {wanted}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", help="a cache2k trace packed with xz")
    parser.add_argument("--total-bytes", type=int, required=True, metavar="N")
    parser.add_argument("--partitions", type=int, metavar="N", help="equal parts; without, one cache for all")
    parser.add_argument("--accesses", type=int, metavar="N", help="only the first N")
    parser.add_argument("--check", metavar="REPORT", help="report of sherwood load --json, or -")
    parser.add_argument("--points", type=float, metavar="X", help="tolerance on the hit ratio of all")
    parser.add_argument("--label", help="repeated in the verdict of --check")
    args = parser.parse_args()

    items_max = args.total_bytes // (args.partitions or 1) // charge(KEY_BYTES, VALUE_BYTES)
    partition_of = (lambda word: word >> 27) if args.partitions else (lambda word: 0)
    exact = report(replay(accesses(args.trace, args.accesses), items_max, partition_of))
    if not args.check:
        print(json.dumps(exact))
        return 0
    with sys.stdin if args.check == "-" else open(args.check, encoding="utf-8") as file:
        seen = json.load(file)
    different = list(differences(exact, seen, args.points))
    off = 100 * (seen["hit_ratio"] - exact["hit_ratio"])
    verdict = {
        "label": args.label,
        "exact_hits": exact["hits"],
        "seen_hits": seen["hits"],
        "points": round(off, 4),
        "agrees": not different,
    }
    print(json.dumps(verdict))
    for sentence in different:
        print(f"exact_lru.py: {sentence}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
