// Numbers for people.

const MIB = 1024 * 1024;

export function bytes(value) {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`;
}

export function ms(value) {
  if (value === null || value === undefined) return '–';
  if (value >= 10000) return `${digits(value / 1000)} s`;
  return `${digits(value)} ms`;
}

export function percent(ratio) {
  if (ratio === null || ratio === undefined) return '–';
  const value = ratio * 100;
  return `${value === 0 || value >= 99.95 ? value.toFixed(0) : value.toFixed(1)}%`;
}

export function count(value) {
  if (value === null || value === undefined) return '–';
  if (value >= 1e9) return `${digits(value / 1e9)} G`;
  if (value >= 1e6) return `${digits(value / 1e6)} M`;
  if (value >= 1e4) return `${digits(value / 1e3)} k`;
  return Number.isInteger(value) ? String(value) : digits(value);
}

export function times(value) {
  return value === null || value === undefined ? '–' : `${value.toFixed(2)}×`;
}

/** Three significant digits, without an exponent. */
function digits(value) {
  if (value === 0) return '0';
  const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 3));
}

/** Distances of sizes between the lines of a grid. */
export const SIZE_STEPS = Array.from({ length: 44 }, (_, power) => 2 ** power);

/** Shortens a figure of an axis: `50.0 ms` becomes `50 ms`. */
export function tidy(text) { return text.replace(/(\d)\.0+(?=\D|$)/, '$1').replace(/(\.\d*[1-9])0+(?=\D|$)/, '$1'); }

export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString([], { hour12: false });
}

export function since(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

/** Reads a size such as `64MiB`, `1.5 GiB` or a number of bytes; null if it is none. */
export function parseBytes(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?\s*$/i.exec(text);
  if (!match) return null;
  const power = ['', 'K', 'M', 'G', 'T'].indexOf(match[2].toUpperCase());
  return Math.round(Number(match[1]) * 1024 ** power);
}

/** A size that `parseBytes` reads back, in MiB where it is even. */
export function exactBytes(value) {
  if (value % MIB === 0) return `${value / MIB} MiB`;
  if (value % 1024 === 0) return `${value / 1024} KiB`;
  return String(value);
}
