// Says of every answer whether it is the expected one: a line "ok - what" or "not ok - what: why".

import { isDeepStrictEqual } from "node:util";

let failed = false;

/** One answer that has to be as expected. */
export function check(what, got, expected) {
  if (isDeepStrictEqual(got, expected)) {
    console.log(`ok - ${what}`);
    return;
  }
  failed = true;
  console.log(`not ok - ${what}: expected ${short(expected)}, got ${short(got)}`);
}

/** One call that has to fail with this text. */
export async function refused(what, call, text) {
  const said = await call.then((got) => `no error but ${short(got)}`, (error) => String(error));
  check(what, said.includes(text) ? text : said, text);
}

/** Leaves with status 1 when an answer was wrong. */
export function end() {
  process.exit(failed ? 1 : 0);
}

function short(value) {
  const text = typeof value === "bigint" ? `${value}n` : (JSON.stringify(value) ?? String(value));
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
