// What node-redis asks of a Redis server that is used as a cache, asked of the one at HOST PORT, in both versions of RESP.

import { createClient, createClientPool } from "redis";

import { check, end, refused } from "./check.mjs";

const [host, port] = process.argv.slice(2);
const socket = { host, port: Number(port) };
// What the listener is set to.
const VALUE_BYTES_MAX = 1 << 20;

async function strings(client) {
  check("set", await client.set("a", "1"), "OK");
  check("get", await client.get("a"), "1");
  check("get of nothing", await client.get("none"), null);
  check("set nx over something", await client.set("a", "2", { NX: true }), null);
  check("set get", await client.set("a", "3", { GET: true, EX: 100 }), "1");
  check("ttl", (await client.ttl("a")) > 50, true);
  check("getdel", await client.getDel("a"), "3");
  check("an empty value", [await client.set("empty", ""), await client.get("empty")], ["OK", ""]);
  check("letters of all the world", [await client.set("ü→字", "ü→字"), await client.get("ü→字")], ["OK", "ü→字"]);
}

async function limits(client) {
  check("the largest value", await client.set("large", "x".repeat(VALUE_BYTES_MAX)), "OK");
  check("the largest value back", (await client.get("large")).length, VALUE_BYTES_MAX);
  await refused("one byte more", client.set("large", "x".repeat(VALUE_BYTES_MAX + 1)), "string exceeds maximum");
  check("nobody reads the value it was to replace", await client.get("large"), null);
}

async function many(client) {
  const keys = Array.from({ length: 10_000 }, (_, at) => `many:${at}`);
  check("mset of 10,000", await client.mSet(keys.map((key) => [key, key])), "OK");
  check("mget of 10,000", await client.mGet(keys), keys);
  const seen = new Set();
  for await (const found of client.scanIterator({ MATCH: "many:*", COUNT: 1000 })) [found].flat().forEach((key) => seen.add(key));
  check("a scan through all keys", seen, new Set(keys));
  check("unlink of 10,000", await client.unlink(keys), 10_000);
  const answers = await Promise.all(keys.slice(0, 1000).map((key) => client.incr(key)));
  check("a thousand commands at once", answers, Array(1000).fill(1));
}

async function about(client) {
  check("incrbyfloat", Number(await client.incrByFloat("n", 0.5)), 0.5);
  await refused("incr of a fraction", client.incr("n"), "not an integer");
  await refused("lists", client.lPush("l", "1"), "unknown command");
  check("info", (await client.info("server")).includes("redis_mode:standalone"), true);
  check("config get", { ...(await client.configGet("appendonly")) }, { appendonly: "no" });
  check("type", await client.type("n"), "string");
  check("client info", (await client.clientInfo()).libName, "node-redis");
  check("flushdb", [await client.flushDb(), await client.dbSize()], ["OK", 0]);
}

for (const RESP of [2, 3]) {
  const client = await createClient({ socket, RESP }).on("error", (error) => console.log(`# ${error}`)).connect();
  await client.flushAll();
  for (const part of [strings, limits, many, about]) await part(client);
  client.destroy();
  const pool = await createClientPool({ socket, RESP }, { minimum: 1, maximum: 4 }).connect();
  const answers = await Promise.all(Array.from({ length: 100 }, () => pool.incr("pool")));
  check("a pool", answers.sort((a, b) => a - b), Array.from({ length: 100 }, (_, at) => at + 1));
  pool.destroy();
}
end();
