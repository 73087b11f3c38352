// The figures at the top of the page.

import { byId, setText } from './dom.js';
import { bytes, count, ms, percent, since } from './format.js';

const sum = (column) => column.reduce((total, value) => total + (value ?? 0), 0);

/** Sums a column of all backends over the latest `seconds`. */
function lately(data, value) {
  const from = data.now_ms - 10000;
  let first = data.at_ms.findIndex((time) => time > from);
  if (first < 0) first = Math.max(0, data.at_ms.length - 1);
  const rows = [...data.backends, ...(data.other_backends ? [data.other_backends] : [])];
  let total = 0;
  for (const row of rows) for (let place = first; place < data.at_ms.length; place += 1) total += value(row, place);
  return { total, seconds: Math.max(1, (data.at_ms.length - first) * data.step_s) };
}

export function showSummary(data) {
  const [slo] = data.slos;
  const current = slo.current_ms.at(-1) ?? null;
  setText(byId('now-label'), `Request P${slo.percentile}`);
  setText(byId('now-value'), ms(current));
  setText(byId('now-note'), `SLO ${ms(slo.bound_ms)}`);
  const state = current === null ? '' : current > slo.bound_ms ? 'bad' : current > 0.8 * slo.bound_ms ? 'near' : 'good';
  byId('now').dataset.state = state;
  setText(byId('now-state'), { bad: 'violated', near: 'close to the bound', good: 'kept', '': '' }[state]);

  const seen = sum(slo.observations);
  const violated = sum(slo.violations);
  setText(byId('violated-value'), seen ? percent(violated / seen) : '–');
  setText(byId('violated-note'), seen ? `${count(violated)} of ${count(seen)} observations` : 'no observations yet');

  const rate = data.requests.per_s.slice(-10).filter((value) => value !== null);
  const looked = lately(data, (row, place) => row.look_ups[place] ?? 0);
  const hits = lately(data, (row, place) => (row.look_ups[place] ?? 0) * (row.hit_ratio[place] ?? 0));
  setText(byId('rate-value'), rate.length ? `${count(Math.round(sum(rate) / rate.length))}/s` : '–');
  setText(byId('rate-note'), `${count(Math.round(looked.total / looked.seconds))} look-ups/s`);
  setText(byId('hit-value'), looked.total > 0 ? percent(hits.total / looked.total) : '–');
  setText(byId('cache-value'), bytes(data.cache_total_bytes));
  setText(byId('about'), `version ${data.version}, up ${since(data.now_ms - data.started_ms)}`);
}

/** What is left of the requests that may exceed the bound, since the node's start. */
export function budgetWords(ratio) {
  if (ratio === null) return '';
  return ratio >= 0 ? `${percent(ratio)} of the error budget left` : `${(1 - ratio).toFixed(1)} times the error budget used`;
}

export function showBudget(slo) { setText(byId('budget-note'), budgetWords(slo.budget_left_ratio)); }

export function showUse(partitions, total) {
  const used = partitions.reduce((all, partition) => all + partition.used_bytes, 0);
  setText(byId('cache-note'), total > 0 ? `${bytes(used)} used, ${percent(used / total)}` : '');
}
