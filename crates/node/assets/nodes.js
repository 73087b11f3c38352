// The other nodes of a cluster, as this node knows them.

import { Refused, get } from './api.js';
import { byId, setText, table } from './dom.js';
import { count, since } from './format.js';

/** Rates on loan that are shown: the largest. */
const LOANS_MAX = 50;
/** Seconds from which on values are trusted for good: with no other node nothing is awaited. */
const YEAR_S = 365 * 86400;

export class Nodes {
  constructor() { this.isAlone = false; }

  /** Lets the node be asked again: one that was started anew may be in a cluster now. */
  forget() { this.isAlone = false; }

  /** Shows the cluster. A node alone is not asked again. */
  async refresh() {
    if (this.isAlone) return;
    const view = await cluster();
    this.isAlone = view === null;
    byId('nodes-panel').hidden = this.isAlone;
    if (view !== null) show(view);
  }
}

/** The node's place in a cluster; null if it has none. */
async function cluster() {
  try {
    return await get('/v1/cluster');
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return null;
    throw error;
  }
}

function show({ node, peers, shared, statistics, loans, lent }) {
  setText(byId('nodes-statistics'), `This is node ${node}; decisions use ${whose(node, statistics)}`);
  fill('nodes-peers', 'Other nodes', ['Node', 'Heard', 'Trusted', 'Remark'],
    peers.map((peer) => [peer.node, peer.seen_s === null ? 'never' : `${time(peer.seen_s)} ago`, trusted(peer.trusted_s), remark(peer)]));
  fill('nodes-shared', 'Shared backends', ['Shared backend', 'Trusted', 'Untrusted look-ups', 'Writes'],
    shared.map((of) => [of.backend, trusted(of.trusted_s), count(of.untrusted), writes(of.writes_in_s)]));
  const all = [...loans.map((loan) => ({ loan, way: 'borrowed from' })), ...lent.map((loan) => ({ loan, way: 'lent to' }))];
  all.sort((a, b) => b.loan.units_per_s - a.loan.units_per_s);
  fill('nodes-loans', 'Rates on loan', ['Tenant', 'Resource', 'Units/s', 'Loan'],
    all.slice(0, LOANS_MAX).map(({ loan, way }) => [loan.tenant, loan.resource, count(loan.units_per_s), `${way} ${loan.node}`]));
}

/** Puts a table in its place, which is hidden while there are no rows. */
function fill(id, caption, heads, rows) {
  const place = byId(id);
  place.hidden = rows.length === 0;
  place.replaceChildren(...(rows.length === 0 ? [] : [table(caption, heads, rows)]));
}

/** Whose requests decisions use. */
function whose(node, { from, age_s: age }) {
  if (from === null) return 'its own requests alone';
  if (from === node) return 'the requests of all nodes that are heard';
  return `the requests of all nodes, as ${from} counts them${age === null ? '' : `, ${time(age)} ago`}`;
}

/** For how long cached values may be served if nothing more is heard. */
function trusted(seconds) {
  if (seconds === null || seconds <= 0) return 'not trusted';
  return seconds >= YEAR_S ? 'always' : `for ${time(seconds)}`;
}

function remark(peer) {
  if (peer.lacks_us) return 'lacks this node';
  return peer.answered ? '' : 'no answer yet';
}

function writes(seconds) {
  if (seconds === null) return 'refused while a node lacks this one';
  return seconds > 0 ? `refused for ${time(seconds)}` : 'accepted';
}

/** Seconds, with a tenth where that counts. */
const time = (seconds) => (seconds < 9.95 ? `${Math.max(0, seconds).toFixed(1)} s` : since(seconds * 1000));
