// What ioredis asks of a Redis server that is used as a cache, asked of the one at HOST PORT.

import Redis from "ioredis";

import { check, end, refused } from "./check.mjs";

const [host, port] = process.argv.slice(2);
// What the listener is set to.
const VALUE_BYTES_MAX = 1 << 20;
const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at));

async function strings(client) {
  check("set", await client.set("a", "1"), "OK");
  check("get", await client.get("a"), "1");
  check("get of nothing", await client.get("none"), null);
  check("set nx over something", await client.set("a", "2", "NX"), null);
  check("set with a time", await client.set("a", "3", "PX", 100000), "OK");
  check("getdel", await client.getdel("a"), "3");
  check("append", await client.append("b", "abc"), 3);
  check("getrange", await client.getrange("b", 1, -1), "bc");
  check("any bytes as value", await client.set("bin", bytes), "OK");
  check("any bytes back", (await client.getBuffer("bin")).equals(bytes), true);
  check("any bytes as key", await client.set(bytes.subarray(6), "x"), "OK");
  check("the value of such a key", await client.get(bytes.subarray(6)), "x");
}

async function limits(client) {
  const largest = Buffer.alloc(VALUE_BYTES_MAX, "x");
  check("the largest value", await client.set("large", largest), "OK");
  check("the largest value back", (await client.getBuffer("large")).equals(largest), true);
  await refused("one byte more", client.set("large", Buffer.alloc(VALUE_BYTES_MAX + 1)), "string exceeds maximum");
  check("nobody reads the value it was to replace", await client.get("large"), null);
}

async function many(client) {
  const keys = Array.from({ length: 10_000 }, (_, at) => `many:${at}`);
  check("mset of 10,000", await client.mset(keys.flatMap((key) => [key, key])), "OK");
  check("mget of 10,000", await client.mget(keys), keys);
  const seen = new Set();
  for await (const found of client.scanStream({ match: "many:*", count: 1000 })) found.forEach((key) => seen.add(key));
  check("a scan through all keys", seen, new Set(keys));
  check("unlink of 10,000", await client.unlink(keys), 10_000);
  const pipeline = client.pipeline();
  for (const key of keys.slice(0, 1000)) pipeline.set(key, 1).get(key);
  const answers = await pipeline.exec();
  check("a pipeline of 2,000", [answers.length, answers[1999]], [2000, [null, "1"]]);
  const mixed = await client.pipeline().set("word", "x").incr("word").get("word").exec();
  check("an error in a pipeline", [/not an integer/.test(mixed[1][0]), mixed[2]], [true, [null, "x"]]);
}

async function transactions(client) {
  const answers = await client.multi().set("tx", 1).incr("tx").get("tx").exec();
  check("multi", answers, [[null, "OK"], [null, 2], [null, "2"]]);
  const mixed = await client.multi().set("word", "x").incr("word").get("word").exec();
  check("an error in multi", [/not an integer/.test(mixed[1][0]), mixed[2]], [true, [null, "x"]]);
  const aborted = await client.multi().set("tx", 9).call("NOSUCH").exec().catch((error) => String(error));
  check("multi with a wrong command", [/EXECABORT/.test(aborted), await client.get("tx")], [true, "2"]);
  const other = client.duplicate();
  await other.watch("tx");
  await client.set("tx", 3);
  check("multi after a change of a watched key", await other.multi().set("tx", 4).exec(), null);
  other.disconnect();
}

async function numbersAndTimes(client) {
  check("incrby", await client.incrby("n", 5), 5);
  check("incrbyfloat", await client.incrbyfloat("n", 0.5), "5.5");
  await refused("incr of a fraction", client.incr("n"), "not an integer");
  check("expire", await client.expire("n", 100), 1);
  check("ttl", (await client.ttl("n")) > 50, true);
  check("persist", await client.persist("n"), 1);
  await refused("scripts", client.eval("return 1", 0), "scripts are refused");
  await refused("lists", client.lpush("l", 1), "unknown command");
}

async function reconnect(client) {
  const gone = new Promise((done) => client.once("close", done));
  client.stream.destroy();
  await gone;
  check("a client connects again", await client.get("n"), "5.5");
}

for (const autoPipelining of [false, true]) {
  const client = new Redis({ host, port: Number(port), enableAutoPipelining: autoPipelining, connectionName: "me" });
  await client.flushall();
  for (const part of [strings, limits, many, transactions, numbersAndTimes]) await part(client);
  const list = await client.client("LIST");
  check("client list", list.includes("name=me") && list.includes("lib-name=ioredis"), true);
  if (!autoPipelining) await reconnect(client);
  check("flushdb", [await client.flushdb(), await client.dbsize()], ["OK", 0]);
  client.disconnect();
}
end();
