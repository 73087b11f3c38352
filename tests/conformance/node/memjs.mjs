// memjs speaks only memcached's binary protocol: its requests to HOST PORT are refused at once.

import memjs from "memjs";

import { check, end } from "./check.mjs";

const [host, port] = process.argv.slice(2);
// Each has a client of its own: memjs never ends what is asked after the refusal of one connection.
const asked = [["get", (client) => client.get("a")], ["set", (client) => client.set("a", "1", {})]];
for (const [what, ask] of asked) {
  const client = memjs.Client.create(`${host}:${port}`, { retries: 0, timeout: 30 });
  const started = Date.now();
  const said = await ask(client).then((got) => `answered ${JSON.stringify(got)}`, (error) => String(error));
  check(`${what} is refused`, /^answered/.test(said), false);
  check(`${what} does not wait for its timeout`, Date.now() - started < 20_000, true);
  client.close();
}
end();
