// The dashboard: asks the node for what is new, and shows it.

import { Away, Refused, askAgain, forgetToken, get, hasToken, onTokenWanted, wasDeclined } from './api.js';
import { Backends } from './backends.js';
import { Charts, showEvents } from './charts.js';
import { forgetTokens, isDark } from './colours.js';
import { Control } from './control.js';
import { byId, pause, say, setText } from './dom.js';
import { clock } from './format.js';
import { History } from './history.js';
import { Limits } from './limits.js';
import { Nodes } from './nodes.js';
import { Partitions } from './partitions.js';
import { showBudget, showSummary, showUse } from './summary.js';

/** Milliseconds between two requests for points, and for everything that changes rarely. */
const EVERY = 1000;
const RARELY = 5000;
/** Partitions from which on their list is asked for less often. */
const MANY = 500;

const history = new History();
const charts = new Charts();
const partitions = new Partitions();
const limits = new Limits();
const backendTable = new Backends();
const nodes = new Nodes();
const control = new Control(() => { rareAt = 0; });

let rareAt = 0;
let awaySince = null;
let timer = 0;
/** Whether a round is in progress, and whether another was wanted meanwhile. */
let running = false;
let again = false;

async function round() {
  if (running) { again = true; return; }
  clearTimeout(timer);
  running = true;
  again = false;
  if (!document.hidden) {
    try {
      await ask();
      setPresent();
    } catch (error) {
      if (error instanceof Away || (error instanceof Refused && error.status >= 500)) setAway();
      else {
        setState('stopped', error instanceof Refused ? `not shown: ${error.message}` : 'this page failed: load it again');
        if (!(error instanceof Refused)) console.error(error);
      }
    }
  }
  running = false;
  showTokenButton();
  // With longer steps there is nothing new each second.
  const wait = awaySince === null ? Math.min(history.stepS * EVERY, RARELY) : EVERY;
  timer = setTimeout(round, again ? 0 : wait);
}

async function ask() {
  const restarted = await history.refresh();
  if (restarted) { say('The node was started anew.'); nodes.forget(); rareAt = 0; }
  const { data, rangeS } = history;
  if (data === null) { again = true; return; }
  showSummary(data);
  showEvents(data.events, clock);
  await charts.update(data, rangeS);
  if (Date.now() >= rareAt) {
    const [state, list, backends, slo] =
      await Promise.all([get('/v1/control'), get('/v1/partitions'), get('/v1/backends'), get('/v1/slo')]);
    rareAt = Date.now() + (list.length > MANY ? 6 * RARELY : RARELY);
    control.show(state);
    await pause();
    showUse(list, data.cache_total_bytes);
    partitions.show(list, data.cache_total_bytes);
    await pause();
    limits.show(backends);
    backendTable.show(backends, data.now_ms);
    showBudget(slo);
    charts.budgets = slo;
    charts.hasTenants = state.between !== undefined;
    if (state.between !== undefined) control.showBetween(await get('/v1/tenants'));
    await nodes.refresh();
  }
}

function setPresent() {
  if (awaySince !== null) say('The node is back.');
  awaySince = null;
  setState('live', 'live');
  byId('away').hidden = true;
  document.body.dataset.ready = 'true';
}

function setAway() {
  awaySince ??= Date.now();
  rareAt = 0;
  setState('away', 'away');
  setText(byId('away-since'), clock(awaySince));
  byId('away').hidden = false;
}

/** The button that forgets the token, or lets a reader who gave none give one after all. */
function showTokenButton() {
  byId('forget').hidden = !hasToken() && !wasDeclined();
  setText(byId('forget'), hasToken() ? 'Forget the token' : 'Enter a token');
}

function setState(state, words) {
  byId('state').dataset.state = state;
  setText(byId('state-words'), words);
}

function repaint() {
  forgetTokens();
  charts.repaint();
  partitions.repaint();
  if (history.data) limits.key = undefined;
  rareAt = 0;
}

/** Switches to the other theme, and keeps the choice for the next visit. */
function nextTheme() {
  const next = isDark() ? 'light' : 'dark';
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem('sherwood-theme', next); } catch { /* not kept: then it is the system's next time */ }
  nameTheme();
  repaint();
}

function nameTheme() {
  byId('theme').setAttribute('aria-label', isDark() ? 'Switch to the light theme' : 'Switch to the dark theme');
}

/** Asks the reader for a token. */
function askForToken(why) {
  const dialog = byId('token');
  if (dialog.open) return Promise.resolve(null);
  setText(byId('token-why'), why);
  byId('token-value').value = '';
  dialog.showModal();
  return new Promise((resolve) => {
    let given = null;
    byId('token-form').onsubmit = (event) => { event.preventDefault(); given = byId('token-value').value.trim() || null; dialog.close(); };
    byId('token-cancel').onclick = () => dialog.close();
    dialog.onclose = () => { byId('token-value').value = ''; resolve(given); };
  });
}

onTokenWanted(askForToken);
byId('theme').addEventListener('click', nextTheme);
byId('forget').addEventListener('click', () => {
  if (hasToken()) say('The token is forgotten.');
  forgetToken();
  askAgain();
  round();
});
byId('retry').addEventListener('click', round);
byId('ranges').addEventListener('change', (event) => { history.setRange(Number(event.target.value)); round(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden) round(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { nameTheme(); repaint(); });
nameTheme();
document.querySelectorAll('.origin').forEach((place) => setText(place, location.origin));
round();
