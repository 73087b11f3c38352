// Building blocks of the page. Text from the node only ever becomes text nodes.

/** Creates an element with attributes and children; children that are strings become text. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets text only if it differs, so that screen readers and selections are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Says something to readers of the screen, and shows it for some seconds. */
let toastTimer = 0;
export function say(text, isError = false) {
  const toast = byId('toast');
  toast.textContent = text;
  toast.classList.toggle('error', isError);
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { toast.hidden = true; }, isError ? 12000 : 5000);
}

/** Lets the browser draw and answer the reader before more work is done. */
export const pause = () => globalThis.scheduler?.yield?.() ?? new Promise((resolve) => { setTimeout(resolve); });

/** A table of some columns; cells are strings. */
export function table(caption, heads, rows) {
  const cell = (text, index) =>
    index === 0 ? el('th', { scope: 'row' }, text) : el('td', {}, text);
  return el('table', {},
    el('caption', { class: 'visually-hidden' }, caption),
    el('thead', {}, el('tr', {}, ...heads.map((head) => el('th', { scope: 'col' }, head)))),
    el('tbody', {}, ...rows.map((row) => el('tr', {}, ...row.map(cell)))));
}
