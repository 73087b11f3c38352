// The keys of the chosen partition that are read most, and one key in detail.

import { Away, Refused, get, segment } from './api.js';
import { byId, el, setText } from './dom.js';
import { bytes, ms, percent, since } from './format.js';

/** Keys that are listed. */
const LISTED = 10;

export class Keys {
  constructor() {
    this.partition = null;
    this.key = null;
    byId('key-form').addEventListener('submit', (event) => { event.preventDefault(); this.look(byId('key-name').value, false); });
    byId('key-value-show').addEventListener('click', () => this.look(this.key, true));
  }

  /** Shows the keys of a partition, and none in detail. */
  async start(partition) {
    this.partition = partition;
    this.key = null;
    this.isRefused = false;
    byId('key-name').value = '';
    byId('key-shown').hidden = true;
    await this.refresh();
  }

  /** Lists the hot keys anew. */
  async refresh() {
    // What was refused once would be refused every time.
    if (this.isRefused) return;
    const { name } = this.partition;
    const [[view], why, isRefused] = await asked(`/v1/hot-keys?partition=${segment(name)}&max=${LISTED}`, [{ keys: [] }]);
    if (this.partition.name !== name) return;
    this.isRefused = isRefused;
    const none = why || (view.keys.length === 0 ? 'No reads lately: one round of reads in 64 is sampled.' : '');
    byId('keys-none').hidden = none === '';
    setText(byId('keys-none'), none);
    byId('hot-keys').hidden = none !== '';
    byId('hot-keys').replaceChildren(...view.keys.map((hot) => this.item(hot)));
  }

  item({ key, encoding, share_ratio: share, error_ratio: error }) {
    // A key that is no text cannot be part of an address.
    const name = encoding === 'utf8'
      ? el('button', { type: 'button', class: 'link', onclick: () => { byId('key-name').value = key; this.look(key, false); } }, visible(key))
      : el('span', {}, `${key} (base64)`);
    const figure = error > share / 10 ? `${percent(share - error)} to ${percent(share)}` : percent(share);
    return el('li', {}, name, el('span', { class: 'figure' }, figure));
  }

  /** Shows what the cache holds of a key, its value only if that is asked for. */
  async look(key, withValue) {
    if (key === '' || key === null) return;
    this.key = key;
    const { name, backend, tenant } = this.partition;
    const [view, why] = await asked(`/v1/keys/${segment(backend)}/${segment(key)}?tenant=${segment(tenant)}&value=${withValue}`, null);
    if (this.key !== key || this.partition.name !== name) return;
    const place = view?.places.find((at) => at.partition === name) ?? null;
    byId('key-shown').hidden = false;
    setText(byId('key-title'), visible(key));
    const facts = place === null ? [['State', why || 'not in the cache']] : factsOf(place);
    byId('key-facts').replaceChildren(...facts.flatMap(([fact, is]) => [el('dt', {}, fact), el('dd', {}, is)]));
    byId('key-value').hidden = !withValue || place === null;
    setText(byId('key-value'), place?.value ?? '');
    byId('key-value-show').hidden = withValue || place === null || place.value_bytes === 0;
  }
}

/** A key with its control characters escaped, such as those of a database of Redis. */
const visible = (key) => key.replace(/[\u0000-\u001f\u007f]/g, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);

/** The answer to a request, or `otherwise`; the reason why there is none, and whether it was refused. */
async function asked(path, otherwise) {
  try {
    return [await get(path), '', false];
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Away)) throw error;
    return [otherwise, error.message, error instanceof Refused];
  }
}

const STATES = {
  fresh: 'in the cache',
  stale: 'in the cache, stale',
  absent: 'known to have no value',
  placeholder: 'to be filled by a client',
};

function factsOf(place) {
  const { expires_in_ms: left, class_upto_ms: upto, encoding } = place;
  return [
    ['State', STATES[place.state]],
    ['Size', bytes(place.value_bytes)],
    ['Stored or last used', `${since(place.age_ms)} ago`],
    ['Expires', left === null ? 'never' : left < 0 ? `${since(-left)} ago` : `in ${since(left)}`],
    ...(upto === null ? [] : [['Deadline class', `up to ${ms(upto)}`]]),
    ['Flags', String(place.flags)],
    ...(encoding === 'base64' ? [['Value', 'no text: shown in base64']] : []),
  ];
}
