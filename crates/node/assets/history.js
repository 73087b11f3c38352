// The node's history in this page: points arrive as they are made and are kept for the range shown.

import { get } from './api.js';

/** Ranges that can be shown, in seconds, and the step of their points. */
export const RANGES = { 300: 1, 900: 5, 3600: 5 };

/** Lists of a history that have a `name` or another key, and columns beside it. */
const LISTS = ['slos', 'backends', 'partitions', 'deadlines', 'tenants'];
const ROWS = ['other_backends', 'other_partitions', 'requests'];

export class History {
  constructor() { this.rangeS = 300; this.data = null; }

  get stepS() { return RANGES[this.rangeS]; }

  setRange(rangeS) { this.rangeS = rangeS; this.data = null; }

  /** Asks for what is new. Returns true if the node has been started anew since. */
  async refresh() {
    const { data: before, rangeS } = this;
    const all = `/v1/history?step_s=${this.stepS}`;
    const last = before?.at_ms.at(-1);
    let fresh = await get(last ? `${all}&after_ms=${last}` : all);
    // Two starts of one node differ by more than rounding.
    const restarted = before !== null && Math.abs(before.started_ms - fresh.started_ms) > 1500;
    const continues = last && !restarted && sameSeries(before, fresh);
    if (last && !continues) fresh = await get(all);
    // Another range may have been chosen meanwhile.
    if (this.rangeS !== rangeS) return false;
    if (continues) append(before, fresh);
    else this.data = fresh;
    this.trim();
    return restarted;
  }

  trim() {
    const { at_ms: at, now_ms: now } = this.data;
    const from = now - this.rangeS * 1000;
    const gone = at.findIndex((time) => time >= from);
    if (gone > 0) eachColumn(this.data, (column) => column.splice(0, gone));
  }
}

/** Whether the columns of `fresh` continue those of `before`. A list without points has no names. */
function sameSeries(before, fresh) {
  if (fresh.at_ms.length === 0) return true;
  const keys = (list) => list.map((row) => `${row.scope ?? ''}/${row.name ?? row.upto_ms ?? ''}`).join('\n');
  return LISTS.every((name) => keys(before[name]) === keys(fresh[name])) &&
    ROWS.every((name) => (before[name] === undefined) === (fresh[name] === undefined));
}

function append(data, fresh) {
  const events = data.events;
  if (fresh.at_ms.length > 0) {
    for (const [name, value] of Object.entries(fresh)) {
      if (name === 'events') continue;
      if (LISTS.includes(name)) value.forEach((row, index) => appendRow(data[name][index], row));
      else if (ROWS.includes(name)) appendRow(data[name], value);
      else if (Array.isArray(value)) data[name].push(...value);
      else data[name] = value;
    }
  }
  data.now_ms = fresh.now_ms;
  for (const event of fresh.events) {
    const same = events.at(-1);
    // An event that repeats the last one takes its place, as in the node.
    if (same && same.kind === event.kind && same.message === event.message) events.pop();
    if (!events.some((known) => known.unix_ms === event.unix_ms && known.message === event.message)) events.push(event);
  }
  if (events.length > 200) events.splice(0, events.length - 200);
}

function appendRow(row, fresh) {
  for (const [key, value] of Object.entries(fresh)) {
    if (Array.isArray(value)) row[key].push(...value);
    else row[key] = value;
  }
}

function eachColumn(data, change) {
  const ofRow = (row) => Object.values(row ?? {}).forEach((value) => { if (Array.isArray(value)) change(value); });
  change(data.at_ms);
  change(data.decisions);
  ROWS.forEach((name) => ofRow(data[name]));
  LISTS.forEach((name) => data[name].forEach(ofRow));
}
