// What memjs, which speaks only memcached's binary protocol, asks of a memcached server, asked of the one at HOST PORT, and with
// a USER and a PASSWORD logged in by SASL.

import memjs from "memjs";

import { check, end, refused } from "./check.mjs";

const [host, port, username, password] = process.argv.slice(2);
// What the listener is set to.
const VALUE_BYTES_MAX = 1 << 20;

function connect(options = {}) {
  return memjs.Client.create(`${host}:${port}`, { retries: 0, timeout: 30, username, password, logger: { log() {} }, ...options });
}

const text = async (asked) => (await asked).value?.toString() ?? null;

async function storage(client) {
  check("set", await client.set("a", "1", {}), true);
  check("get", await text(client.get("a")), "1");
  check("get of nothing", await text(client.get("none")), null);
  check("add over something", await client.add("a", "2", {}), false);
  check("add", await client.add("b", "2", {}), true);
  check("replace", [await client.replace("b", "3", {}), await client.replace("none", "3", {})], [true, false]);
  // Its prepend sends an append.
  check("append", [await client.append("b", "+"), await text(client.get("b"))], [true, "3+"]);
  check("touch", [await client.touch("a", 100), await client.touch("none", 100)], [true, false]);
  check("delete", [await client.delete("b"), await client.delete("b")], [true, false]);
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, at) => at));
  await client.set("bin", bytes, {});
  check("any bytes back", (await client.get("bin")).value.equals(bytes), true);
}

async function numbers(client) {
  check("increment creates", (await client.increment("n", 2, { initial: 5 })).value, 5);
  check("increment", (await client.increment("n", 2, {})).value, 7);
  check("decrement", (await client.decrement("n", 100, {})).value, 0);
}

async function limits(client) {
  const largest = Buffer.alloc(VALUE_BYTES_MAX, "x");
  check("the largest value", await client.set("large", largest, {}), true);
  check("the largest value back", (await client.get("large")).value.equals(largest), true);
  await refused("one byte more", client.set("large", Buffer.alloc(VALUE_BYTES_MAX + 1), {}), "Value too large");
  check("nobody reads the value it was to replace", await text(client.get("large")), null);
}

async function many(client) {
  const keys = Array.from({ length: 200 }, (_, at) => `many:${at}`);
  await Promise.all(keys.map((key) => client.set(key, key, {})));
  check("200 at once", await Promise.all(keys.map((key) => text(client.get(key)))), keys);
}

async function server(client) {
  const stats = await new Promise((done) => client.stats((error, _, stats) => done(stats)));
  check("stats", Number(stats.curr_items) > 0, true);
  await client.flush();
  check("flush", await text(client.get("a")), null);
}

const client = connect();
for (const part of [storage, numbers, limits, many, server]) await part(client);
client.close();
if (username) {
  const stranger = connect({ password: "wrong" });
  const said = await text(stranger.get("a")).then((got) => `answered ${got}`, (error) => String(error));
  check("a wrong password", /^answered/.test(said), false);
  stranger.close();
}
end();
