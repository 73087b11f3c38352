// The partitions as a table, and one of them in detail: its curve, its keys, and its pins.

import uPlot from './uPlot.esm.js';
import { get, segment } from './api.js';
import { colour, token } from './colours.js';
import { change } from './control.js';
import { byId, el, say, setText } from './dom.js';
import { SIZE_STEPS, bytes, count, exactBytes, ms, parseBytes, percent, tidy } from './format.js';
import { Keys } from './keys.js';

/** Rows that are shown at a time. */
const ROWS_MAX = 50;
/** Places of the slider. */
const PLACES = 1000;

export class Partitions {
  constructor() {
    this.all = [];
    this.rows = new Map();
    this.curve = new Curve();
    this.keys = new Keys();
    byId('filter').addEventListener('input', () => this.render());
    byId('detail-close').addEventListener('click', () => this.close());
    byId('pins').addEventListener('submit', (event) => { event.preventDefault(); this.savePins(); });
    byId('pin-dry').addEventListener('change', (event) => {
      const dryRun = event.target.checked;
      this.change({ dry_run: dryRun }, dryRun ? `Decisions about ${this.open} are only reported.` : `Decisions about ${this.open} are applied.`);
    });
  }

  show(partitions, total) {
    this.all = partitions;
    this.total = total;
    this.render();
    if (this.open) {
      this.curve.refresh(this.open);
      this.keys.refresh();
    }
  }

  repaint() { this.render(true); this.curve.draw(true); }

  render(repaints = false) {
    const wanted = byId('filter').value.trim().toLowerCase();
    const found = this.all.filter((partition) => partition.name.toLowerCase().includes(wanted));
    const shown = found.sort((a, b) => b.allocated_bytes - a.allocated_bytes || a.name.localeCompare(b.name)).slice(0, ROWS_MAX);
    shown.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
    byId('filter-row').hidden = this.all.length <= 12;
    setText(byId('shown'), found.length > shown.length ? `The ${shown.length} largest of ${count(found.length)} are shown.` : '');
    const key = shown.map((partition) => partition.name).join('\n');
    if (key !== this.key || repaints) {
      this.key = key;
      this.rows.clear();
      byId('partitions').replaceChildren(...shown.map((partition) => this.row(partition)));
    }
    const most = Math.max(1, ...this.all.map((partition) => partition.allocated_bytes));
    shown.forEach((partition) => this.fill(partition, most));
  }

  row({ name }) {
    const cell = (part) => el('td', { class: part });
    const swatch = el('span', { class: 'swatch' });
    swatch.style.setProperty('--swatch', colour(name));
    const button = el('button', { type: 'button', class: 'link', 'aria-expanded': 'false', 'aria-controls': 'detail', onclick: () => this.choose(name) }, name);
    const bar = el('span', { class: 'bar' }, el('span', { class: 'used' }));
    bar.style.setProperty('--swatch', colour(name));
    const cells = Object.fromEntries(['allocated', 'used', 'items', 'ratio', 'p50', 'p99', 'pin'].map((part) => [part, cell(part)]));
    const label = el('span', { class: 'figure' });
    cells.allocated.append(bar, label);
    this.rows.set(name, { ...cells, button, bar, label });
    return el('tr', {}, el('th', { scope: 'row' }, swatch, button), ...Object.values(cells));
  }

  fill(partition, most) {
    const row = this.rows.get(partition.name);
    const { allocated_bytes: allocated, used_bytes: used, hits, misses } = partition;
    row.bar.style.width = `${Math.max(1, (100 * allocated) / most)}%`;
    row.bar.firstChild.style.width = `${allocated > 0 ? Math.min(100, (100 * used) / allocated) : 0}%`;
    setText(row.label, bytes(allocated));
    setText(row.used, bytes(used));
    setText(row.items, count(partition.items));
    setText(row.ratio, hits + misses > 0 ? percent(hits / (hits + misses)) : '–');
    setText(row.p50, ms(partition.latency_ms?.p50));
    setText(row.p99, ms(partition.latency_ms?.p99));
    setText(row.pin, pinWords(partition));
    row.button.setAttribute('aria-expanded', String(partition.name === this.open));
  }

  find(name) { return this.all.find((partition) => partition.name === name); }

  async choose(name) {
    if (this.open === name) { this.close(); return; }
    this.open = name;
    this.render();
    byId('detail').hidden = false;
    setText(byId('detail-name'), name);
    this.showPins(this.find(name));
    await Promise.all([this.curve.start(name, this.total), this.keys.start(this.find(name))]);
    byId('detail').scrollIntoView({ block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
    byId('detail-name').focus({ preventScroll: true });
  }

  close() {
    const name = this.open;
    this.open = null;
    byId('detail').hidden = true;
    this.render();
    this.rows.get(name)?.button.focus();
  }

  showPins({ min_bytes: min, max_bytes: max, dry_run: dryRun }) {
    byId('pin-min').value = min > 0 ? exactBytes(min) : '';
    byId('pin-max').value = max === null ? '' : exactBytes(max);
    byId('pin-dry').checked = dryRun;
  }

  savePins() {
    const read = (id, none) => (byId(id).value.trim() === '' ? none : parseBytes(byId(id).value));
    // A maximum of the total or more is no limit.
    const min = read('pin-min', 0);
    const max = read('pin-max', Number.MAX_SAFE_INTEGER);
    const wrong = min === null ? 'pin-min' : max === null ? 'pin-max' : null;
    for (const id of ['pin-min', 'pin-max']) byId(id).setAttribute('aria-invalid', String(id === wrong));
    if (wrong) { say('A size is a number with KiB, MiB or GiB, such as 64 MiB.', true); byId(wrong).focus(); return; }
    this.change({ min_bytes: min, max_bytes: max }, `The pins of ${this.open} are set.`);
  }

  async change(body, done) {
    const name = this.open;
    const answer = await change(`/v1/partitions/${segment(name)}`, body, done);
    const partition = this.find(name);
    if (answer !== null && partition) {
      Object.assign(partition, { min_bytes: answer.min_bytes, max_bytes: answer.max_bytes, dry_run: answer.dry_run });
    }
    if (partition && this.open === name) { this.showPins(partition); this.render(); }
  }
}

function pinWords({ min_bytes: min, max_bytes: max, dry_run: dryRun }) {
  const range = min > 0 && max !== null ? `${bytes(min)} to ${bytes(max)}` : min > 0 ? `at least ${bytes(min)}` : max !== null ? `at most ${bytes(max)}` : '';
  return [range, dryRun ? 'dry run' : ''].filter(Boolean).join(', ') || '–';
}

/** The miss ratio curve of the partition that is open, with its present size and another one. */
class Curve {
  constructor() {
    this.holder = byId('curve');
    byId('what-if').addEventListener('input', () => { this.place = Number(byId('what-if').value); this.tell(); this.draw(); });
    new ResizeObserver(() => { if (this.u && this.holder.clientWidth > 0) this.u.setSize({ width: this.holder.clientWidth, height: 220 }); }).observe(this.holder);
  }

  async start(name, total) {
    this.name = name;
    this.total = total;
    this.place = null;
    this.data = null;
    this.u?.destroy();
    this.u = null;
    await this.refresh(name);
  }

  async refresh(name) {
    let data = null;
    let why = '';
    try {
      data = await get(`/v1/mrc/${segment(name)}`);
      if (data.bytes.length < 2) why = 'No curve yet: it needs look-ups that hit.';
    } catch (error) {
      why = error.message;
    }
    if (this.name !== name) return;
    byId('curve-none').hidden = why === '';
    setText(byId('curve-none'), why);
    byId('curve-shown').hidden = why !== '';
    if (why !== '') return;
    this.data = data;
    // The slider reaches a bit beyond the curve and the present size, in steps of its thousandth.
    this.most = Math.min(Math.max(this.total, 1), Math.max(data.bytes.at(-1) * 1.05, data.allocated_bytes * 2));
    if (this.place === null) {
      this.place = Math.round((PLACES * Math.min(data.allocated_bytes, this.most)) / this.most);
      byId('what-if').value = this.place;
    }
    this.tell();
    this.draw();
  }

  size() { return (this.most * this.place) / PLACES; }

  missRatio(size) {
    const { bytes: sizes, miss_ratio: ratios } = this.data;
    const next = sizes.findIndex((at) => at >= size);
    if (next < 0) return ratios.at(-1);
    if (next === 0) return ratios[0];
    const part = (size - sizes[next - 1]) / (sizes[next] - sizes[next - 1] || 1);
    return ratios[next - 1] + part * (ratios[next] - ratios[next - 1]);
  }

  tell() {
    const now = this.data.allocated_bytes;
    const [then, present] = [this.size(), now].map((size) => 1 - this.missRatio(size));
    setText(byId('what-if-value'), `With ${bytes(this.size())} the hit ratio would be ${percent(then)}; with the present ${bytes(now)} it is ${percent(present)} by the curve.`);
    byId('what-if').setAttribute('aria-valuetext', `${bytes(this.size())}: hit ratio ${percent(then)}`);
  }

  draw(anew = false) {
    if (!this.data) return;
    const marks = [this.data.allocated_bytes, this.size()];
    const inRange = this.data.bytes.filter((size) => size <= this.most);
    const xs = [...new Set([...inRange, ...marks.filter((size) => size <= this.most), this.most])].sort((a, b) => a - b);
    const at = (mark) => xs.map((size) => (size === mark ? this.missRatio(size) : null));
    const data = [xs, xs.map((size) => this.missRatio(size)), at(marks[0]), at(marks[1])];
    if (anew) { this.u?.destroy(); this.u = null; }
    if (this.u) this.u.setData(data);
    else this.u = new uPlot(this.options(), data, this.holder);
    this.holder.setAttribute('aria-label', `Miss ratio of ${this.name} by size. ${byId('what-if-value').textContent}`);
  }

  options() {
    const axis = { stroke: () => token('muted'), font: '12px system-ui, sans-serif', ticks: { show: false }, grid: { stroke: () => token('grid'), width: 1 } };
    const dot = (key) => ({ stroke: () => token(key), width: 0, points: { show: true, size: 11, fill: () => token(key), stroke: () => token('panel'), width: 2 } });
    return {
      width: Math.max(120, this.holder.clientWidth), height: 220, legend: { show: false }, padding: [10, 14, 0, 0],
      cursor: { show: false },
      scales: { x: { time: false, range: (_, from, to) => [0, to] }, y: { range: () => [0, 1.02] } },
      axes: [
        { ...axis, space: 80, size: 28, incrs: SIZE_STEPS, values: (_, sizes) => sizes.map((size) => tidy(bytes(size))) },
        { ...axis, space: 36, size: 52, values: (_, ratios) => ratios.map((ratio) => tidy(percent(ratio))) },
      ],
      series: [{}, { stroke: () => colour(this.name), width: 2, points: { show: false } }, dot('muted'), dot('accent')],
    };
  }
}
