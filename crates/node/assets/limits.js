// Sliders for the capacity of embedded backends.

import { segment } from './api.js';
import { change } from './control.js';
import { colour } from './colours.js';
import { byId, el, setText } from './dom.js';

/** Places of a slider: shares of the capacity, in percent. */
const MIN = 2;
const MAX = 100;

export class Limits {
  constructor() { this.rows = new Map(); }

  show(backends) {
    const limitable = backends.filter((backend) => backend.limits !== null);
    byId('limits-panel').hidden = limitable.length === 0;
    const key = limitable.map((backend) => backend.name).join('\n');
    if (key !== this.key) {
      this.key = key;
      this.rows.clear();
      byId('limits').replaceChildren(...limitable.map((backend, index) => this.row(backend, index)));
    }
    limitable.forEach((backend) => this.set(backend.name, backend.limits.cpu_ratio));
  }

  row({ name, kind }, index) {
    const id = `limit-${index}`;
    const swatch = el('span', { class: 'swatch' });
    swatch.style.setProperty('--swatch', colour(name));
    const output = el('output', { for: id });
    const slider = el('input', { type: 'range', id, min: MIN, max: MAX, step: 1, 'aria-describedby': 'limits-help' });
    slider.addEventListener('input', () => { this.moving = name; setText(output, words(slider.value)); });
    slider.addEventListener('change', () => { this.moving = null; this.send(name, Number(slider.value)); });
    const lift = el('button', { type: 'button', class: 'small', onclick: () => this.send(name, MAX), 'aria-label': `Lift the limit of ${name}` }, 'Lift');
    this.rows.set(name, { slider, output, lift });
    return el('li', {}, swatch, el('label', { for: id }, name), el('span', { class: 'muted' }, kind ?? ''), slider, output, lift);
  }

  async send(name, share) {
    const limit = share >= MAX ? null : share / 100;
    const done = limit === null ? `${name} has no limit now.` : `${name} has ${share}% of its capacity now.`;
    const answer = await change(`/v1/backends/${segment(name)}/limit`, { cpu_ratio: limit }, done);
    if (answer !== null) this.set(name, answer.cpu_ratio);
  }

  set(name, ratio) {
    const row = this.rows.get(name);
    if (!row || this.moving === name || document.activeElement === row.slider) return;
    row.slider.value = ratio === null ? MAX : Math.max(MIN, Math.min(MAX, Math.round(ratio * 100)));
    setText(row.output, words(row.slider.value));
    row.lift.disabled = ratio === null;
  }
}

function words(share) { return Number(share) >= MAX ? 'no limit' : `${share}%`; }
