// The backends behind the cache: their replicas, and what became of the keys asked for.

import { byId, table } from './dom.js';
import { count } from './format.js';

/** Rows that are shown: those with most keys lately. */
const ROWS_MAX = 50;

export class Backends {
  constructor() { this.before = null; }

  /** Shows the backends that have replicas, with rates since the list before. */
  show(list, nowMs) {
    const asked = list.filter((backend) => backend.replicas > 0);
    byId('backends-panel').hidden = asked.length === 0;
    const seconds = this.before ? (nowMs - this.before.nowMs) / 1000 : 0;
    const rows = asked.map((backend) => {
      const earlier = this.before?.keys.get(backend.name);
      const rate = (key) => (earlier && seconds > 0 ? Math.max(0, backend.keys[key] - earlier[key]) / seconds : null);
      return { backend, asked: rate('asked'), failed: sum(rate('failed'), rate('timed_out')), rejected: rate('rejected'), stale: rate('stale') };
    });
    rows.sort((a, b) => (b.asked ?? 0) - (a.asked ?? 0) || a.backend.name.localeCompare(b.backend.name));
    const heads = ['Backend', 'Replicas up', 'In flight', 'Waiting', 'Keys/s', 'Failed/s', 'Rejected/s', 'Stale/s'];
    const total = (backend, key) => count(backend.replica_states.reduce((all, replica) => all + replica[key], 0));
    const cells = ({ backend, ...rates }) => [
      backend.name, `${backend.replica_states.filter((replica) => replica.up).length} of ${backend.replicas}`,
      total(backend, 'in_flight'), total(backend, 'waiting'),
      ...['asked', 'failed', 'rejected', 'stale'].map((key) => perSecond(rates[key])),
    ];
    byId('backends').replaceChildren(table('Backends', heads, rows.slice(0, ROWS_MAX).map(cells)));
    this.before = { nowMs, keys: new Map(asked.map((backend) => [backend.name, backend.keys])) };
  }
}

const sum = (a, b) => (a === null || b === null ? null : a + b);

function perSecond(rate) {
  if (rate === null) return '–';
  return rate >= 10 || rate === 0 ? count(Math.round(rate)) : rate.toFixed(1);
}
