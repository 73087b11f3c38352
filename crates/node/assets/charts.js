// The charts of the dashboard, from the columns of the history.

import { Chart } from './chart.js';
import { assign, colour, otherColour, token } from './colours.js';
import { byId, el, pause, setText, table } from './dom.js';
import { SIZE_STEPS, bytes, count, ms, percent, times } from './format.js';

/** A text for a chart without values, with a link to the section that says what to do. */
const nothing = (text) => [text, ' ', el('a', { href: '#help', onclick: () => { byId('help').open = true; } }, 'What to do')];

export class Charts {
  constructor() {
    const chart = (id, options) => new Chart(byId(id), options);
    this.latency = chart('latency', { title: 'Request latency', format: ms, empty: nothing('No request yet: read keys through a listener, or send requests to POST /v1/requests.') });
    this.violations = chart('violations', { title: 'SLO violations', kind: 'bars', format: count, empty: nothing('No observation yet: the first comes with the first requests.') });
    this.blocking = chart('blocking', { title: 'Requests blocked by backend', kind: 'stack', format: count, empty: nothing('Nothing blocks requests yet.') });
    this.allocation = chart('allocation', { title: 'Cache by partition', kind: 'stack', format: bytes, steps: SIZE_STEPS });
    this.hits = chart('hits', { title: 'Hit ratio by backend', format: percent, max: 1.02, empty: nothing('No look-up yet: connect a client of memcached or Redis.') });
    this.queries = chart('queries', { title: 'Query P99 by backend', format: ms, empty: nothing('No query yet: connect a client of memcached or Redis.') });
    this.deadlines = chart('deadlines', { title: 'Deadlines missed by class', format: percent, max: 1.02, empty: nothing('No deadline yet.') });
    this.tenants = chart('tenants', { title: 'Throughput of tenants against their baselines', format: times, empty: 'Not measured yet: a tenant is measured while it asks for more than its baseline.' });
    this.all = [this.latency, this.violations, this.blocking, this.allocation, this.hits, this.queries, this.deadlines, this.tenants];
  }

  repaint() { this.all.forEach((chart) => chart.repaint()); }

  /** Shows a history, a chart after the other, so that none of it blocks the page for long. */
  async update(data, rangeS) {
    const at = data.at_ms.map((time) => time / 1000);
    const range = [data.now_ms / 1000 - rangeS, data.now_ms / 1000];
    const show = async (chart, series) => { chart.update({ at, series, range }); await pause(); };
    assign(data.backends.map((backend) => backend.name));
    const named = (rows, column, others) => [
      ...rows.map((row) => ({ name: `name ${row.name}`, label: row.name, values: row[column], colour: () => colour(row.name) })),
      ...(others ? [{ name: 'others', label: 'all others', values: others[column], colour: otherColour }] : []),
    ];
    const marks = moved(data.events);
    [this.latency, this.violations, this.blocking, this.allocation, this.hits].forEach((chart) => { chart.marks = marks; });
    await show(this.latency, latencySeries(data));
    await show(this.violations, violationSeries(data.slos));
    const blocking = named(data.backends, 'blocking', data.other_backends);
    await show(this.blocking, blocking.some((one) => one.values.some((value) => value > 0)) ? blocking : []);
    await show(this.allocation, named(data.partitions, 'bytes', data.other_partitions));
    await show(this.hits, named(data.backends.map(smoothed), 'hit_ratio', data.other_backends && smoothed(data.other_backends)));
    await show(this.queries, named(data.backends, 'query_p99_ms'));
    await this.showDeadlines(data, show);
    await this.showTenants(data, show);
    showSlos(data.slos, this.budgets);
  }

  async showDeadlines(data, show) {
    const total = (column) => column.reduce((sum, value) => sum + value, 0);
    const used = data.deadlines.filter((of) => total(of.met) + total(of.missed) > 0);
    byId('deadlines-panel').hidden = used.length === 0;
    if (used.length === 0) return;
    const label = (of) => (of.upto_ms === null ? 'any' : `up to ${ms(of.upto_ms)}`);
    const ratio = (met, missed) => (met + missed > 0 ? missed / (met + missed) : null);
    await show(this.deadlines, used.map((of) => ({
      name: label(of), label: label(of), group: 'deadlines', values: of.met.map((met, place) => ratio(met, of.missed[place])),
    })));
    const rows = used.map((of) => [label(of), count(total(of.met)), count(total(of.missed)), percent(ratio(total(of.met), total(of.missed)))]);
    byId('deadlines-table').replaceChildren(table('Deadlines in the range shown', ['Deadline', 'Met', 'Missed', 'Missed share'], rows));
  }

  async showTenants(data, show) {
    byId('tenants-panel').hidden = !this.hasTenants && data.tenants.length === 0;
    if (byId('tenants-panel').hidden) return;
    const baseline = { name: 'baseline', label: 'baseline', values: data.at_ms.map(() => 1), dash: [6, 4], width: 1.5, colour: () => token('alert') };
    const series = data.tenants.map((of) => ({ name: `tenant ${of.name}`, label: of.name, group: 'tenants', values: of.normalized }));
    await show(this.tenants, series.length > 0 ? [...series, baseline] : []);
  }
}

function latencySeries({ requests, slos, at_ms: at }) {
  const line = (name, values, key, width) => ({ name, label: name, values, width, colour: () => token(key) });
  const [{ bound_ms: bound, percentile }] = slos;
  return [
    line('P99', requests.p99_ms, 'p99', 2),
    line('P90', requests.p90_ms, 'p90'),
    line('P50', requests.p50_ms, 'p50'),
    { name: 'SLO', label: `SLO (P${percentile})`, values: at.map(() => bound), dash: [6, 4], width: 1.5, colour: () => token('alert') },
  ];
}

export function sloName({ scope, name }) { return scope === 'all' ? 'all requests' : `${scope} ${name}`; }

function violationSeries(slos) {
  const series = (slo) => ({
    name: sloName(slo), label: sloName(slo), group: 'slos', colour: slo.scope === 'all' ? () => token('alert') : undefined,
    values: slo.violations.map((violations, place) => (slo.observations[place] > 0 ? violations : null)),
  });
  return slos.map(series);
}

/** The SLOs of classes and tenants, a row each. */
function showSlos(slos, budgets) {
  const own = slos.slice(1);
  const place = byId('slo-table');
  place.hidden = own.length === 0;
  if (own.length === 0) return;
  const sum = (column) => column.reduce((total, value) => total + value, 0);
  const rows = own.map((slo) => {
    const seen = sum(slo.observations);
    return [sloName(slo), `P${slo.percentile}`, ms(slo.current_ms.at(-1)), ms(slo.bound_ms), seen ? percent(sum(slo.violations) / seen) : '–',
      budgetLeft(budgets, slo)];
  });
  place.replaceChildren(table('SLOs of classes and tenants', ['SLO', 'Percentile', 'Now', 'Bound', 'Violated', 'Error budget left'], rows));
}

function budgetLeft(budgets, { scope, name }) {
  const all = scope === 'class' ? budgets?.classes : budgets?.tenants;
  const ratio = all?.find((slo) => slo.name === name)?.budget_left_ratio ?? null;
  return ratio === null ? '–' : percent(ratio);
}

/** Look-ups over which a hit ratio is taken at least, and steps that it may reach back for them. */
const LOOK_UPS_MIN = 200;
const STEPS_MAX = 30;

/** The hit ratio of a backend: of each step, or of as many steps before it as have enough look-ups. */
function smoothed(row) {
  const ratio = row.hit_ratio.map((_, place) => {
    let looked = 0;
    let hits = 0;
    for (let at = place; at >= 0 && at > place - STEPS_MAX && looked < LOOK_UPS_MIN; at -= 1) {
      const of = row.look_ups[at] ?? 0;
      looked += of;
      hits += of * (row.hit_ratio[at] ?? 0);
    }
    return looked > 0 ? hits / looked : null;
  });
  return { ...row, hit_ratio: ratio };
}

/** Times (seconds) at which decisions moved bytes. */
const moved = (events) => events.filter((event) => event.message.startsWith('moved ')).map((event) => event.unix_ms / 1000);

/** The latest events in words, newest first. */
export function showEvents(events, clock) {
  const place = byId('events');
  const latest = events.slice(-12).reverse();
  const key = latest.map((event) => `${event.unix_ms}${event.message}`).join('\n');
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const item = (event) => el('li', {},
    el('span', { class: 'when' }, clock(event.unix_ms)),
    el('span', { class: `kind ${/^[a-z]+$/.test(event.kind) ? event.kind : ''}` }, event.kind),
    el('span', { class: 'what' }, event.message));
  place.replaceChildren(...latest.map(item));
  setText(byId('events-none'), latest.length === 0 ? 'No decision yet.' : '');
}
