// A chart with its legend, a description for screen readers, and its figures as a table.

import uPlot from './uPlot.esm.js';
import { colour, token } from './colours.js';
import { el, setText, table } from './dom.js';
import { clock, tidy } from './format.js';

const HEIGHT = 220;
/** Rows of a chart's table. */
const ROWS_MAX = 12;
/** Names in the box beside the pointer. */
const TIP_MAX = 10;
const FONT = '12px system-ui, sans-serif';

/**
 * A chart over time. `kind` is `lines`, `stack` or `bars` (stacked); `format` makes text of a value,
 * and `steps` are distances between the lines of the grid.
 * Series are `{ name, label, values, group?, colour?, dash?, width? }`, one value for each time.
 */
export class Chart {
  constructor(root, { title, kind = 'lines', format, steps, max = null, min = 0, height = HEIGHT, empty = 'Nothing yet.' }) {
    Object.assign(this, { title, kind, format, steps, max, min, height });
    this.hidden = new Set();
    this.emphasis = null;
    this.plot = el('div', { class: 'plot', role: 'img', 'aria-label': title });
    this.tip = el('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
    this.nothing = el('p', { class: 'nothing' }, ...[empty].flat());
    /** Times (seconds) that are marked by lines. */
    this.marks = [];
    this.legend = el('ul', { class: 'legend', 'aria-label': `${title}: series` });
    this.figures = el('div', { class: 'figures', tabindex: '0', role: 'region', 'aria-label': `${title}: figures` });
    this.details = el('details', { class: 'as-table', ontoggle: () => this.fillTable() },
      el('summary', {}, 'Figures'), this.figures);
    this.holder = el('div', { class: 'holder' }, this.plot, this.tip, this.nothing);
    root.append(this.holder, this.legend, this.details);
    new ResizeObserver(() => this.fit()).observe(this.holder);
  }

  /** Shows times (seconds) and series; `range` is the first and last second of the axis. */
  update({ at, series, range }) {
    this.last = { at, series, range };
    const names = series.map((one) => one.name).join('\n');
    // Dashed lines are bounds, which are there without any measurement.
    const isEmpty = !series.some((one) => !one.dash && one.values.some((value) => value !== null && value !== undefined));
    this.nothing.hidden = !isEmpty;
    if (names !== this.names) {
      this.names = names;
      this.rebuild();
      this.buildLegend();
    }
    this.draw();
  }

  /** Draws again with the colours of the present theme. */
  repaint() {
    if (!this.last) return;
    this.rebuild();
    this.buildLegend();
    this.draw();
  }

  draw() {
    const { at, series, range } = this.last;
    this.range = range;
    this.u.setData([at, ...this.columns(series)], false);
    this.u.batch(() => {
      this.u.setScale('x', { min: range[0], max: range[1] });
      this.u.setScale('y', this.span(series));
    });
    this.showValues(at.length - 1);
    this.describe();
    if (this.details.open) this.fillTable();
  }

  /** Columns as they are drawn: stacked ones lie on those that follow, so that the first is highest. */
  columns(series) {
    const shown = series.map((one) => (this.hidden.has(one.name) ? one.values.map(() => null) : one.values));
    if (this.kind === 'lines') return shown;
    const sums = new Array(this.last.at.length).fill(0);
    const stacked = [];
    for (let index = shown.length - 1; index >= 0; index -= 1) {
      if (!this.hidden.has(series[index].name)) {
        shown[index].forEach((value, place) => { sums[place] += value ?? 0; });
      }
      stacked[index] = this.hidden.has(series[index].name) ? shown[index] : sums.slice();
    }
    return stacked;
  }

  span(series) {
    let most = 0;
    for (const column of this.columns(series)) for (const value of column) if (value > most) most = value;
    if (this.max !== null) return { min: this.min, max: this.max };
    return { min: this.min, max: most > 0 ? most * 1.08 : 1 };
  }

  rebuild() {
    this.u?.destroy();
    const { series } = this.last;
    const axis = { stroke: () => token('muted'), font: FONT, ticks: { show: false } };
    const grid = { stroke: () => token('grid'), width: 1 };
    const options = {
      width: this.width(), height: this.height,
      legend: { show: false },
      padding: [8, 18, 0, 0],
      cursor: { y: false, points: { show: this.kind === 'lines', size: 6 }, drag: { x: false, y: false }, sync: { key: 'time' } },
      scales: { x: { time: true, auto: false }, y: { auto: false } },
      axes: [
        { ...axis, grid: { show: false }, space: 70, size: 26, values: (_, times) => times.map((time) => timeLabel(time, this.range)) },
        { ...axis, grid, space: 36, size: 62, incrs: this.steps, values: (_, values) => values.map((value) => tidy(this.format(value))) },
      ],
      series: [{}, ...series.map((one) => this.style(one))],
      hooks: { setCursor: [() => this.point()], draw: [(u) => this.drawMarks(u)] },
    };
    const columns = this.columns(series);
    this.u = new uPlot(options, [this.last.at, ...columns], this.plot);
  }

  /** Draws a line at each mark. */
  drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = token('muted');
    ctx.globalAlpha = 0.5;
    ctx.setLineDash([2, 3]);
    for (const mark of this.marks) {
      const x = Math.round(u.valToPos(mark, 'x', true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  style(one) {
    const own = () => colourOf(one);
    const dimmed = () => this.emphasis !== null && this.emphasis !== one.name;
    const base = { label: one.label, scale: 'y', points: { show: false }, spanGaps: false };
    if (this.kind === 'lines') {
      return { ...base, stroke: () => (dimmed() ? faded(own()) : own()), width: one.width ?? 1.6, dash: one.dash };
    }
    const paths = this.kind === 'bars' ? uPlot.paths.bars({ size: [0.9, 14], align: -1 }) : undefined;
    return { ...base, paths, stroke: () => token('panel'), width: this.kind === 'bars' ? 0 : 0.75,
      fill: () => (dimmed() ? faded(own()) : own()) };
  }

  buildLegend() {
    const item = (one) => {
      const swatch = el('span', { class: one.dash ? 'swatch dashed' : 'swatch' });
      swatch.style.setProperty('--swatch', colourOf(one));
      const button = el('button', {
        type: 'button', class: 'key', 'aria-pressed': String(!this.hidden.has(one.name)),
        onclick: () => this.toggle(one.name),
        onmouseenter: () => this.emphasize(one.name), onmouseleave: () => this.emphasize(null),
        onfocus: () => this.emphasize(one.name), onblur: () => this.emphasize(null),
      }, swatch, el('span', { class: 'name' }, one.label), el('span', { class: 'value' }));
      return el('li', {}, button);
    };
    const focused = document.activeElement?.closest('li');
    const place = [...this.legend.children].indexOf(focused);
    this.legend.replaceChildren(...this.last.series.map(item));
    if (place >= 0) this.legend.children[place]?.querySelector('button').focus();
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.last.series.forEach((one, index) => {
      this.legend.children[index].firstChild.setAttribute('aria-pressed', String(!this.hidden.has(one.name)));
    });
    this.draw();
  }

  emphasize(name) {
    this.emphasis = name;
    this.u?.redraw(false);
  }

  /** Puts the values at a place beside the names of the legend. */
  showValues(place) {
    this.last.series.forEach((one, index) => {
      setText(this.legend.children[index].querySelector('.value'), this.text(one.values[place]));
    });
  }

  text(value) { return value === null || value === undefined ? '–' : this.format(value); }

  /** Follows the pointer with a box of the values at its time. */
  point() {
    const place = this.u?.cursor.idx;
    if (place === null || place === undefined || this.u.cursor.left < 0) {
      this.tip.hidden = true;
      if (this.last && this.legend.children.length === this.last.series.length) this.showValues(this.last.at.length - 1);
      return;
    }
    const { at, series } = this.last;
    this.showValues(place);
    const own = this.u.over.matches(':hover');
    this.tip.hidden = !own;
    if (!own) return;
    const shown = series.filter((one) => !this.hidden.has(one.name) && (one.values[place] ?? null) !== null);
    if (this.kind !== 'lines' || shown.length > 4) shown.sort((a, b) => b.values[place] - a.values[place]);
    const rows = shown.slice(0, TIP_MAX).map((one) => {
      const swatch = el('span', { class: 'swatch' });
      swatch.style.setProperty('--swatch', colourOf(one));
      return el('div', { class: 'tip-row' }, swatch, el('span', { class: 'name' }, one.label),
        el('span', { class: 'value' }, this.text(one.values[place])));
    });
    const more = shown.length > TIP_MAX ? [el('div', { class: 'more' }, `and ${shown.length - TIP_MAX} more`)] : [];
    this.tip.replaceChildren(el('div', { class: 'tip-time' }, clock(at[place] * 1000)), ...rows, ...more);
    const left = this.u.cursor.left + this.u.over.offsetLeft;
    const isRight = left > this.holder.clientWidth / 2;
    this.tip.style.left = isRight ? 'auto' : `${left + 14}px`;
    this.tip.style.right = isRight ? `${this.holder.clientWidth - left + 14}px` : 'auto';
  }

  /** Describes the chart's present values in words, at most every ten seconds. */
  describe() {
    const { series, at } = this.last;
    const now = at.at(-1) ?? 0;
    if (this.described !== undefined && now - this.described < 10) return;
    this.described = now;
    const latest = series.map((one) => [one.label, one.values.at(-1)]).filter(([, value]) => (value ?? null) !== null);
    latest.sort((a, b) => b[1] - a[1]);
    const words = latest.slice(0, 5).map(([label, value]) => `${label} ${this.format(value)}`);
    const more = latest.length > 5 ? `, and ${latest.length - 5} more` : '';
    this.plot.setAttribute('aria-label', words.length ? `${this.title}. Now: ${words.join(', ')}${more}.` : `${this.title}. Nothing yet.`);
  }

  /** Fills the table with times spread over the range, newest first. */
  fillTable() {
    if (!this.details.open || !this.last) return;
    const { at, series } = this.last;
    const stride = Math.max(1, Math.ceil(at.length / ROWS_MAX));
    const places = [];
    for (let place = at.length - 1; place >= 0; place -= stride) places.push(place);
    const rows = places.map((place) => [clock(at[place] * 1000), ...series.map((one) => this.text(one.values[place]))]);
    this.figures.replaceChildren(table(this.title, ['Time', ...series.map((one) => one.label)], rows));
  }

  width() { return Math.max(120, this.holder.clientWidth); }

  fit() {
    if (!this.u) return;
    const width = this.width();
    if (Math.abs(width - this.u.width) > 1) this.u.setSize({ width, height: this.height });
  }
}

function colourOf(one) { return one.colour?.() ?? colour(one.name, one.group); }

function faded(text) { return `color-mix(in srgb, ${text} 22%, ${token('panel')})`; }

function timeLabel(seconds, range) {
  const [from, to] = range ?? [0, 0];
  const format = to - from <= 600 && seconds % 60 !== 0 ? { hour: '2-digit', minute: '2-digit', second: '2-digit' } : { hour: '2-digit', minute: '2-digit' };
  return new Date(seconds * 1000).toLocaleTimeString([], { ...format, hour12: false });
}
