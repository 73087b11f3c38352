// The control loop's settings: policy, dry run, guard.

import { put } from './api.js';
import { byId, el, say, setText } from './dom.js';
import { bytes } from './format.js';

/** Moves of a decision that are shown. */
const MOVES_MAX = 5;

/** Sends a change and says how it went; returns the answer, or null if it was refused. */
export async function change(path, body, done) {
  try {
    const answer = await put(path, body);
    say(done);
    return answer;
  } catch (error) {
    say(`Not changed: ${error.message}`, true);
    return null;
  }
}

export class Control {
  constructor(changed) {
    this.changed = changed;
    byId('policy-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const policy = byId('policy').value;
      this.send({ policy }, `The policy is ${policy} now.`);
    });
    byId('between-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const policy = byId('between').value;
      this.send({ policy }, `The policy between tenants is ${policy} now.`);
    });
    byId('dry-run').addEventListener('change', (event) => {
      const dryRun = event.target.checked;
      this.send({ dry_run: dryRun }, dryRun ? 'Dry run: decisions are reported and not applied.' : 'Decisions are applied again.');
    });
    byId('guard').addEventListener('change', (event) => {
      const guard = event.target.checked;
      this.send({ guard }, guard ? 'The guard is on.' : 'The guard is off: nothing is rolled back.');
    });
  }

  async send(body, done) {
    const view = await change('/v1/control', body, done);
    if (view !== null) this.show(view, true);
    else if (this.view) this.show(this.view, true);
    this.changed();
  }

  show(view, replaces = false) {
    const before = this.view;
    this.view = view;
    setText(byId('policy-now'), view.policy);
    fill(byId('policy'), grouped(view.available), view.policy, replaces || before?.policy !== view.policy);
    byId('between-form').hidden = view.between === undefined;
    byId('dry-run').checked = view.dry_run;
    byId('guard').checked = view.guard !== null;
    // With tenants both are off and cannot be switched on.
    const hasTenants = view.between !== undefined;
    byId('dry-run').disabled = hasTenants && !view.dry_run;
    byId('guard').disabled = hasTenants && view.guard === null;
    const seconds = view.delta_ms / 1000;
    setText(byId('policy-note'), `decides every ${seconds >= 1 ? `${+seconds.toFixed(1)} s` : `${Math.round(view.delta_ms)} ms`}${view.dry_run ? '; dry run' : ''}`);
    showLatest(view.latest);
    const frozen = view.guard?.frozen_s;
    setText(byId('guard-note'), frozen ? `rolled back; nothing moves for ${Math.ceil(frozen)} s` : view.guard?.trips ? `${view.guard.trips} rollbacks` : '');
  }

  showBetween(tenants) { fill(byId('between'), tenants.available, tenants.policy, this.between !== tenants.policy); this.between = tenants.policy; }
}

/** The largest moves of the latest decision, or the reason why nothing moved. */
function showLatest(latest) {
  const moves = latest?.moves ?? [];
  setText(byId('latest'), latest === null ? 'No decision yet.' : latest.kept ? latest.line : moves.length === 0 ? latest.line : '');
  byId('latest').hidden = moves.length > 0 && !latest.kept;
  const gained = (move) => move.after_bytes - move.before_bytes;
  const largest = [...moves].sort((a, b) => Math.abs(gained(b)) - Math.abs(gained(a))).slice(0, MOVES_MAX);
  const sign = (move) => `${gained(move) < 0 ? '−' : '+'}${bytes(Math.abs(gained(move)))}`;
  byId('moves').replaceChildren(...largest.map((move) => el('li', { class: gained(move) < 0 ? 'gave' : 'got' },
    el('span', { class: 'name' }, move.partition), el('span', { class: 'moved' }, sign(move)), el('span', { class: 'muted' }, move.reason))));
}

/** Policies for production; the others are variants to compare with. */
const USUAL = ['robinhood', 'shared-lru', 'static'];

/** Divides policies into the usual ones and more. */
function grouped(names) {
  const isUsual = (name) => USUAL.includes(name);
  return [...names.filter(isUsual), { label: 'More, to compare with', names: names.filter((name) => !isUsual(name)) }];
}

/**
 * Fills a list of choices, which are names or groups `{ label, names }`; the chosen one is kept while
 * the reader may be choosing.
 */
function fill(select, choices, chosen, replaces) {
  const key = JSON.stringify(choices);
  const option = (name) => el('option', { value: name }, name);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...choices.map((choice) => (typeof choice === 'string' ? option(choice)
      : el('optgroup', { label: choice.label }, ...choice.names.map(option)))));
    replaces = true;
  }
  if (replaces) select.value = chosen;
}
