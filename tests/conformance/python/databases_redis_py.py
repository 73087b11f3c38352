"""What redis-py asks of a listener with sixteen databases at HOST PORT."""

import sys

import redis

from tap import check, end, refused

host, port = sys.argv[1], int(sys.argv[2])


def client(database):
    return redis.Redis(host, port, db=database, decode_responses=True)


def main():
    zero, three = client(0), client(3)
    for database, one in ((0, zero), (3, three)):
        one.set("name", f"of {database}", ex=100)
        one.mset({f"key:{number}": number for number in range(1000)})
    check("values of two databases", (zero.get("name"), three.get("name")), ("of 0", "of 3"))
    check("scan and keys", sorted(three.scan_iter("key:99*")), sorted(three.keys("key:99*")))
    check("dbsize", (zero.dbsize(), three.dbsize()), (1001, 1001))
    check("database of a url", redis.Redis.from_url(f"redis://{host}:{port}/3").get("name"), b"of 3")
    check("copy", three.copy("name", "copy", destination_db=0), True)
    check("copied", (zero.get("copy"), three.exists("copy")), ("of 3", 0))
    check("move", (bool(three.move("name", 5)), bool(three.move("name", 5))), (True, False))
    check("moved with its time to live", client(5).ttl("name") > 90, True)
    check("transaction", three.pipeline().incr("count").incr("count").execute(), [1, 2])
    check("transaction of another database", zero.get("count"), None)
    three.flushdb()
    check("flushdb", (three.dbsize(), zero.dbsize(), client(5).dbsize()), (0, 1002, 1))
    check("last database", client(15).ping(), True)
    for command, text in [
        (("SWAPDB", 0, 1), "SWAPDB is refused"),
        (("SELECT", 16), "DB index is out of range"),
        (("LPUSH", "list", 1), "unknown command 'LPUSH', with args beginning with: 'list' '1'"),
        (("GTE", "name"), "did you mean 'GET'?"),
    ]:
        refused(command[0], redis.ResponseError, lambda: zero.execute_command(*command), text)
    end()


main()
