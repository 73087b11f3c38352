// Colours of series, the same for a name in every chart.

const LIGHT = ['#3568d4', '#d9791a', '#23895f', '#c23a63', '#7350c7', '#14859f', '#8f6413', '#5a7f1e', '#b8428a', '#56657a'];
const DARK = ['#7aa5ff', '#f0a445', '#4cc38a', '#f07896', '#ab92f5', '#4cc4de', '#d6a850', '#98c65a', '#f08cc6', '#9fb0c6'];

/** Places of names in the palette, by group: backends and their partitions, tenants, SLOs, … */
const groups = new Map();

/** Gives names their colours in this order; names that have one keep it. */
export function assign(names, group = 'backends') {
  if (!groups.has(group)) groups.set(group, new Map());
  const places = groups.get(group);
  for (const name of names) if (!places.has(name)) places.set(name, places.size);
  return places;
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

/** The colour of a name in its group. After the palette's ten, the same hues come again in another tone. */
export function colour(name, group = 'backends') {
  const place = assign([name], group).get(name);
  const base = (isDark() ? DARK : LIGHT)[place % LIGHT.length];
  const round = Math.floor(place / LIGHT.length) % 3;
  return round === 0 ? base : mixed(base, isDark() ? '#171e27' : '#ffffff', round === 1 ? 0.42 : 0.66);
}

function mixed(one, other, share) {
  const channel = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const part = (at) => Math.round(channel(one, at) * (1 - share) + channel(other, at) * share);
  return `rgb(${part(1)}, ${part(3)}, ${part(5)})`;
}

/** The colour of the sum of what is not shown by name. */
export const otherColour = () => (isDark() ? '#5c6b80' : '#a9b4c2');

const tokens = new Map();

/** A colour of the style sheet, kept until the theme changes. */
export function token(name) {
  if (!tokens.has(name)) tokens.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return tokens.get(name);
}

/** Forgets the colours of the theme before. */
export function forgetTokens() { tokens.clear(); }
