// Looks at the dashboard of a node as a reader would, in Chromium without a window.
//
//   node dashboard.mjs URL TOKEN_URL TOKEN PLAIN_URL CLUSTER_URL
//
// The node at URL has backends whose names are markup, and one called `slow` whose answers take
// longer with less capacity. The node at TOKEN_URL asks for TOKEN. The node at PLAIN_URL has a client of Redis as its only load,
// which computes what it misses, slower for the backend `slow`. The node at CLUSTER_URL is `a` of a
// cluster of `a` and `b`, which share a backend whose name is markup. A line `stop` or `start` on
// standard output asks the test to end the first node or to start it again; the test answers each
// with a line. Modules come from SHERWOOD_DASHBOARD; pictures go to SHERWOOD_PICTURES, if set.

import { strict as assert } from 'node:assert';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const modules = createRequire(`${process.env.SHERWOOD_DASHBOARD}/package.json`);
const puppeteer = modules('puppeteer-core');
const axe = modules.resolve('axe-core/axe.min.js');
const [url, tokenUrl, token, plainUrl, clusterUrl] = process.argv.slice(2);
const pictures = process.env.SHERWOOD_PICTURES;
/** Longest wait for anything; reached only by a failing test. */
const TIMEOUT = 120_000;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function ask(what) {
  console.log(what);
  await answers.next();
}

const browser = await puppeteer.launch({
  executablePath: process.env.SHERWOOD_CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb'],
  protocolTimeout: TIMEOUT,
});

/** Opens a page that collects whatever goes wrong in it. */
async function open(address, { theme = 'light', width = 1280, height = 900 } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT);
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // The browser itself reports that a node alone has no cluster.
    const isAlone = message.text().includes('404') && message.location().url?.endsWith('/v1/cluster');
    if (['error', 'warn'].includes(message.type()) && !isAlone) wrong.push(`console: ${message.text()}`);
  });
  await page.evaluateOnNewDocument(() => {
    window.longTasks = [];
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => window.longTasks.push(entry.duration)))
      .observe({ type: 'longtask', buffered: true });
    document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
  await page.setViewport({ width, height });
  const outside = [];
  const asked = [];
  page.on('request', (request) => {
    asked.push(new URL(request.url()).pathname);
    if (!request.url().startsWith(address) && !request.url().startsWith('data:')) outside.push(request.url());
  });
  await page.goto(address, { waitUntil: 'load' });
  return { page, wrong, outside, asked };
}

const ready = (page) => page.waitForFunction(() => document.body.dataset.ready === 'true');
const text = (page, id) => page.$eval(`#${id}`, (element) => element.textContent);

/** Everything that axe finds wrong with a page. */
async function accessibility(page, what) {
  if (!(await page.evaluate(() => 'axe' in window))) {
    // The page's policy admits no script but the node's own; the debugger is not bound by it.
    await page.evaluate((await import('node:fs')).readFileSync(axe, 'utf8'));
  }
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const said = violations.map(({ id, help, nodes }) => `${id}: ${help}\n  ${nodes.map((node) => node.html).join('\n  ')}`);
  assert.deepEqual(said, [], `axe, ${what}`);
}

async function picture(page, name) {
  if (!pictures) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true });
}

async function step(name, run) {
  await run();
  console.error(`ok ${name}`);
}

/** Waits until a text of the page satisfies a pattern. */
const says = (page, id, pattern) => page.waitForFunction(
  (id, pattern) => new RegExp(pattern).test(document.getElementById(id).textContent), {}, id, pattern);

const { page, wrong, outside } = await open(url);

await step('page loads and shows the figures of a running node', async () => {
  await ready(page);
  await says(page, 'state-words', '^live$');
  await says(page, 'now-value', 'ms');
  await page.waitForFunction(() => document.querySelector('#latency canvas') !== null &&
    /ms/.test(document.querySelector('#latency .legend .value').textContent));
  const { loaded, longTasks } = await page.evaluate(() => ({
    loaded: performance.getEntriesByType('navigation')[0].loadEventEnd, longTasks: window.longTasks,
  }));
  console.error(`loaded in ${loaded.toFixed(0)} ms, long tasks: ${longTasks.map((ms) => ms.toFixed(0)).join(', ') || 'none'}`);
});

await step('names that are markup are shown as text', async () => {
  const name = '<img src=x onerror="window.broken=1">';
  await page.waitForFunction((name) => [...document.querySelectorAll('#partitions button')].some((button) => button.textContent === name), {}, name);
  for (const id of ['blocking', 'allocation', 'hits', 'queries', 'limits', 'partitions']) {
    await page.waitForFunction((id, name) => document.getElementById(id).textContent.includes(name), {}, id, name);
  }
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.$('img[src="x"], main script, main b'), null);
});

await step('a spike of a slowed backend appears, and is over when its limit is lifted', async () => {
  assert.notEqual(await page.$eval('#now', (tile) => tile.dataset.state), 'bad');
  const slider = await page.evaluateHandle(() => [...document.querySelectorAll('#limits li')]
    .find((item) => item.querySelector('label').textContent === 'slow').querySelector('input'));
  await slider.focus();
  await page.keyboard.press('Home');
  await says(page, 'events', 'slow limited by hand');
  await page.waitForFunction(() => document.getElementById('now').dataset.state === 'bad');
  await says(page, 'violated-value', '[1-9]');
  await page.waitForFunction(() => [...document.querySelectorAll('#blocking .key')]
    .some((key) => key.querySelector('.name').textContent === 'slow' && /[1-9]/.test(key.querySelector('.value').textContent)));
  await picture(page, 'spike');
  await page.keyboard.press('End');
  await page.waitForFunction(() => document.getElementById('now').dataset.state === 'good');
});

await step('switched policy decides and is shown', async () => {
  await page.select('#policy', 'equal');
  await page.click('#policy-form button');
  await says(page, 'policy-now', '^equal$');
  await says(page, 'events', 'policy switched to equal');
  await page.waitForFunction(async () => (await (await fetch('/v1/control')).json()).policy === 'equal');
  await page.click('#dry-run');
  await says(page, 'policy-note', 'dry run');
  await page.click('#dry-run');
  await page.waitForFunction(() => !document.getElementById('policy-note').textContent.includes('dry run'));
});

await step('a partition has a curve with another size, and pins', async () => {
  await page.evaluate(() => [...document.querySelectorAll('#partitions button')].find((button) => button.textContent === 'slow').click());
  await page.waitForSelector('#curve-shown:not([hidden])');
  const before = await text(page, 'what-if-value');
  assert.match(before, /hit ratio would be/);
  await page.focus('#what-if');
  await page.keyboard.press('Home');
  await page.waitForFunction((before) => document.getElementById('what-if-value').textContent !== before, {}, before);
  await page.type('#pin-min', 'a lot');
  await page.click('#pins button[type=submit]');
  await page.waitForSelector('#pin-min[aria-invalid=true]');
  await page.$eval('#pin-min', (input) => { input.value = ''; });
  await page.type('#pin-min', '1 MiB');
  await page.click('#pins button[type=submit]');
  await says(page, 'partitions', 'at least 1.00 MiB');
  await accessibility(page, 'partition open');
  await page.click('#detail-close');
});

await step('keys read most are listed, and a key is described without its value unless asked', async () => {
  const choose = (page) => page.evaluate(() => [...document.querySelectorAll('#partitions button')].find((button) => button.textContent === 'catalog').click());
  await choose(page);
  await page.waitForFunction(() => [...document.querySelectorAll('#hot-keys li')].some((item) => /^a\d/.test(item.textContent)));
  await page.evaluate(() => [...document.querySelectorAll('#hot-keys button')].find((button) => button.textContent === 'a').click());
  await says(page, 'key-facts', 'in the cache');
  assert.equal(await page.$eval('#key-value', (value) => value.hidden), true);
  await page.$eval('#key-value-show', (button) => button.click());
  await says(page, 'key-value', '^1$');
  await accessibility(page, 'key');
  await picture(page, 'key');
  const markup = '<img src=x onerror="window.broken=1">';
  await page.evaluate((markup) => [...document.querySelectorAll('#hot-keys button')].find((button) => button.textContent === markup).click(), markup);
  await page.waitForFunction((markup) => document.getElementById('key-title').textContent === markup, {}, markup);
  await page.$eval('#key-value-show', (button) => button.click());
  await says(page, 'key-value', '^<i>3</i>$');
  assert.equal(await page.evaluate(() => window.broken), undefined);
  assert.equal(await page.$('.keys img, .keys i'), null);
  await page.$eval('#key-name', (input) => { input.value = ''; });
  await page.type('#key-name', 'nowhere');
  await page.keyboard.press('Enter');
  await says(page, 'key-facts', 'not in the cache');
  await page.click('#detail-close');
  const narrow = await open(url, { width: 360 });
  await ready(narrow.page);
  await narrow.page.waitForSelector('#partitions button');
  await choose(narrow.page);
  await narrow.page.waitForSelector('#hot-keys li');
  await accessibility(narrow.page, 'partition open, 360 px');
  const overflow = await narrow.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${overflow} px too wide`);
  await picture(narrow.page, 'key-360');
  assert.deepEqual([...narrow.wrong, ...narrow.outside], []);
  await narrow.page.close();
});

await step('both themes at both sizes have no accessibility violation', async () => {
  for (const theme of ['light', 'dark']) {
    for (const width of [1280, 360]) {
      const other = await open(url, { theme, width });
      await ready(other.page);
      await says(other.page, 'now-value', 'ms');
      await other.page.click('#latency details summary');
      await accessibility(other.page, `${theme}, ${width} px`);
      const overflow = await other.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${width} px: ${overflow} px too wide`);
      await picture(other.page, `${theme}-${width}`);
      assert.deepEqual([...other.wrong, ...other.outside], []);
      await other.page.close();
    }
  }
});

await step('theme switch is kept for the next visit', async () => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await background();
  await page.click('#theme');
  const after = await background();
  assert.notEqual(after, before);
  await page.reload();
  await ready(page);
  assert.equal(await background(), after);
  await page.click('#theme');
});

await step('charts can be read as tables, and series be hidden, by keyboard', async () => {
  await page.focus('#latency .key');
  await page.keyboard.press('Space');
  assert.equal(await page.$eval('#latency .key', (key) => key.getAttribute('aria-pressed')), 'false');
  await page.keyboard.press('Space');
  await page.focus('#latency summary');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#latency table td');
});

await step('page says that the node is away, and goes on when it is back', async () => {
  assert.deepEqual(wrong, []);
  await ask('stop');
  await page.waitForSelector('#away:not([hidden])');
  await says(page, 'state-words', '^away$');
  await accessibility(page, 'away');
  await ask('start');
  await page.waitForSelector('#away[hidden]');
  await says(page, 'state-words', '^live$');
  await says(page, 'now-value', 'ms');
  // The browser itself reports each request that nobody answered.
  const others = wrong.filter((line) => !/Failed to load resource: net::ERR_/.test(line));
  assert.deepEqual([...others, ...outside], []);
});

await step('a token is asked for once, and kept in memory only', async () => {
  const guarded = await open(tokenUrl);
  await guarded.page.waitForSelector('#token[open]');
  await accessibility(guarded.page, 'token');
  await guarded.page.type('#token-value', token);
  await guarded.page.keyboard.press('Enter');
  await ready(guarded.page);
  for (const chart of ['latency', 'blocking']) {
    await guarded.page.waitForSelector(`#${chart} .nothing a`, { visible: true });
  }
  await guarded.page.select('#policy', 'equal');
  await guarded.page.click('#policy-form button');
  await says(guarded.page, 'policy-now', '^equal$');
  const kept = await guarded.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, document.body.innerHTML]));
  assert.ok(!kept.includes(token));
  const others = guarded.wrong.filter((line) => !line.includes('401'));
  assert.deepEqual(others, []);
});

await step('an unmodified client of Redis has latency, blocked backends and budgets that move', async () => {
  const plain = await open(plainUrl);
  await ready(plain.page);
  await says(plain.page, 'now-value', 'ms');
  await says(plain.page, 'rate-value', '[1-9].*/s');
  await plain.page.waitForFunction(() => [...document.querySelectorAll('#blocking .key')]
    .some((key) => key.querySelector('.name').textContent === 'slow' && /[1-9]/.test(key.querySelector('.value').textContent)));
  await says(plain.page, 'events', 'moved .*slow');
  await accessibility(plain.page, 'plain client');
  await picture(plain.page, 'plain');
  assert.deepEqual([...plain.wrong, ...plain.outside], []);
});

/** Waits until a page has asked for what changes rarely this often. */
async function rounds({ page, asked }, least) {
  const times = (path) => asked.filter((of) => of === path).length;
  while (times('/v1/control') < least) await page.waitForRequest((request) => request.url().endsWith('/v1/control'));
  return times('/v1/cluster');
}

await step('a node alone is asked once for its cluster, and has no panel of nodes', async () => {
  const alone = await open(url);
  await ready(alone.page);
  assert.equal(await rounds(alone, 3), 1);
  assert.equal(await alone.page.$eval('#nodes-panel', (panel) => panel.hidden), true);
  assert.deepEqual([...alone.wrong, ...alone.outside], []);
  await alone.page.close();
});

await step('a node of a cluster shows the others, again and again', async () => {
  for (const width of [1280, 360]) {
    const one = await open(clusterUrl, { width });
    await ready(one.page);
    await one.page.waitForSelector('#nodes-panel:not([hidden])');
    await says(one.page, 'nodes-statistics', '^This is node a; decisions use the requests of all nodes that are heard$');
    await says(one.page, 'nodes-peers', 'b\\d+\\.\\d s agofor \\d\\.\\d s');
    await says(one.page, 'nodes-shared', '<img src=x .*for \\d\\.\\d s0accepted');
    assert.equal(await one.page.$eval('#nodes-loans', (place) => place.hidden), true);
    assert.equal(await one.page.evaluate(() => window.broken), undefined);
    assert.ok(await rounds(one, 3) >= 2);
    await accessibility(one.page, `nodes, ${width} px`);
    const overflow = await one.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${width} px: ${overflow} px too wide`);
    await picture(one.page, `nodes-${width}`);
    assert.deepEqual([...one.wrong, ...one.outside], []);
    await one.page.close();
  }
});

await browser.close();
console.error('dashboard: all steps passed');
process.exit(0);
