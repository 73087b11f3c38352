// Reads keys with ioredis from the Redis at HOST PORT as an application does: a missed value is computed, which takes MS, and stored.

import { setTimeout } from "node:timers/promises";
import Redis from "ioredis";
import { check, end } from "./check.mjs";

const [host, port, ms] = process.argv.slice(2);
const client = new Redis(Number(port), host);
const keys = Array.from({ length: 8 }, (_, number) => `k${number}`);
for (const key of keys) {
  if ((await client.get(key)) === null) {
    await setTimeout(Number(ms));
    await client.setex(key, 60, "value");
  }
}
check("all values", await client.mget(keys), keys.map(() => "value"));
end();
