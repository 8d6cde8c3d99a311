// Opens the pages of the profiler in Chromium, clicks and types, and compares what they say with the tables behind
// their drawings. main.rs starts the server, runs the queries, and says in SKEWER_PAGE where they are:
//
// address    of the server, with a token that lasts
// ids        of queries by what they are: records, previous, calls, early, counters, ended, off, recursive, failed;
//            optional: markup (SQL text with an HTML element)
// size       embedded or cluster
// part       all; distributed: what may differ with workers; or the beginning of the names of the tests to run
// chromium   the program; profile: a new directory for its files
// exported   a file with the profile of ids.records
// pictures   a directory for screenshots, or null
//
// Prints `NAME ok` for each test that passes. Times are on the error output.
'use strict';

const assert = require('assert');
const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');
const { chromium } = require('playwright-core');
const { AxeBuilder } = require('@axe-core/playwright');

const given = JSON.parse(process.env.SKEWER_PAGE);
const { ids, size } = given;
const origin = new URL(given.address).origin;
const file = pathToFileURL(given.exported).href;

/** Nothing may take longer than this, in milliseconds. A debug build on a busy machine plans sys.diagnoses for half a minute. */
const BOUND = 90_000;
/** Running a query again at level records, in a debug build of three processes on a busy machine. */
const LONG = 120_000;

let context;

// ---------------------------------------------------------------------------------------------------------------
// Pages

/** What went wrong in a page, and how many of its requests have no answer yet. */
const watched = new WeakMap();
/** Views that took longer than the server allows. */
const slow = new Set();

function watch(page, allowed) {
  const state = { faults: [], requests: [], open: 0 };
  watched.set(page, state);
  const fault = (text) => {
    if (!allowed.some((one) => one.test(text))) state.faults.push(text);
  };
  page.on('console', (message) => {
    const { url = '' } = message.location();
    // A view over the limit of time has a test of its own: else each test would fail, and hide what else is wrong.
    if (/status of 503/.test(message.text()) && url.startsWith(`${origin}/api/view/`)) slow.add(url.slice(origin.length, origin.length + 200));
    else if (message.type() === 'error') fault(`console: ${message.text()} ${url}`);
  });
  page.on('pageerror', (error) => fault(`error: ${error.stack ?? error.message}`));
  page.on('crash', () => fault('the page crashed'));
  page.on('request', (request) => {
    const url = request.url();
    state.requests.push(url);
    state.open++;
    if (!isOwn(url)) fault(`a request left the page's origin: ${url}`);
  });
  page.on('requestfinished', () => state.open--);
  page.on('requestfailed', () => state.open--);
}

const isOwn = (url) => url.startsWith(`${origin}/`) || url === file || url.startsWith('data:');

/** A new page at a path of the server. */
async function open(where, { wide = 1280, scheme = 'light', allowed = [] } = {}) {
  const page = await context.newPage();
  page.setDefaultTimeout(BOUND);
  watch(page, allowed);
  await page.setViewportSize({ width: wide, height: 900 });
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(where.startsWith('file:') ? where : origin + where);
  return page;
}

/** Fails if anything went wrong in a page, and closes it. */
async function close(page) {
  const { faults } = watched.get(page);
  await page.close();
  assert.deepStrictEqual(faults, [], 'the page had faults');
}

/** Goes to another path in a page that is open already. */
async function visit(page, where) {
  await page.goto(origin + where);
  await settled(page);
}

const shows = (page) => page.evaluate(() => (document.querySelector('main') ?? document.body).innerText.replace(/\s+/g, ' ').slice(0, 400));

/** Waits until `check` is true in the page. */
async function until(page, what, check, argument, bound = BOUND) {
  try {
    await page.waitForFunction(check, argument, { timeout: bound });
  } catch (error) {
    if (error.name !== 'TimeoutError') throw error;
    throw new Error(`waited ${bound / 1000} s for ${what} at ${page.url()}; the page shows: ${await shows(page)}`);
  }
}

const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Waits until nothing loads: all requests have answers, and no part of the page says that it is busy. */
async function settled(page, bound = BOUND) {
  const deadline = Date.now() + bound;
  let calm = 0;
  while (calm < 3) {
    if (Date.now() > deadline) {
      throw new Error(`waited ${bound / 1000} s for the page to load, at ${page.url()}; ${watched.get(page).open} requests have no answer; the page shows: ${await shows(page)}`);
    }
    await frame(page);
    const busy = await page.evaluate(() => document.querySelector('main') === null || document.querySelector('[aria-busy="true"]') !== null);
    calm = busy || watched.get(page).open > 0 ? 0 : calm + 1;
  }
}

/** The text of the first element that a selector finds, in one line. */
async function text(page, selector) {
  return (await page.locator(selector).first().innerText()).replace(/\s+/g, ' ').trim();
}

/** Waits until the text of an element matches. */
async function says(page, selector, pattern, bound = BOUND) {
  await until(page, `${selector} to say ${pattern}`, ([selector, source, flags]) => {
    const element = document.querySelector(selector);
    return element !== null && new RegExp(source, flags).test(element.innerText.replace(/\s+/g, ' ').trim());
  }, [selector, pattern.source, pattern.flags], bound);
  return text(page, selector);
}

/** A parameter of the address, or null. An exported file has them behind `#`. */
function parameter(page, name) {
  const url = new URL(page.url());
  return (url.protocol === 'file:' ? new URL(url.hash.slice(1), origin) : url).searchParams.get(name);
}

/** Waits until a parameter of the address is, matches, or (null) is gone. */
async function addressHas(page, name, wanted) {
  await until(page, `${name} in the address to be ${wanted}`, ([name, source, text]) => {
    const url = location.protocol === 'file:' ? new URL(location.hash.slice(1), 'http://file') : new URL(location.href);
    const value = url.searchParams.get(name);
    return source === null ? value === text : value !== null && new RegExp(source).test(value);
  }, [name, wanted instanceof RegExp ? wanted.source : null, wanted instanceof RegExp ? null : wanted]);
  return parameter(page, name);
}

// ---------------------------------------------------------------------------------------------------------------
// What pages say

/** The rows of a panel's view, as its button Table shows them: each an object of texts. */
async function rowsOf(page, panel) {
  const button = page.locator(`#${panel} > header button`, { hasText: /^Table$/ });
  await button.click();
  const rows = await readTable(page, panel);
  await button.click();
  await until(page, `panel ${panel} to show its content again`, (id) => document.querySelector(`#${id} > .content:not([hidden])`) !== null, panel);
  return rows;
}

async function readTable(page, panel) {
  await until(page, `the table of panel ${panel}`, (id) => document.querySelector(`#${id} > .table thead th`) !== null, panel);
  return page.evaluate((id) => {
    const table = document.querySelector(`#${id} > .table table`);
    const columns = [...table.querySelectorAll('thead th')].map((cell) => cell.textContent);
    return [...table.querySelectorAll('tbody tr')].map((row) => Object.fromEntries([...row.children].map((cell, i) => [columns[i], cell.textContent])));
  }, panel);
}

function hasColumns(rows, ...columns) {
  assert(rows.length > 0, 'the table has no rows');
  for (const column of columns) assert(column in rows[0], `the table has no column ${column}, but ${Object.keys(rows[0]).join(', ')}`);
}

const sum = (rows, column) => rows.reduce((total, row) => total + Number(row[column]), 0);

/** The nanoseconds of `1.23 ms`. */
function nanoseconds(written) {
  const minutes = /^(\d+) min (\d+) s$/.exec(written);
  if (minutes) return Number(minutes[1]) * 60e9 + Number(minutes[2]) * 1e9;
  const match = /^([\d.,]+) (ns|µs|ms|s)$/.exec(written);
  assert(match, `${JSON.stringify(written)} is no duration`);
  return Number(match[1].replace(/,/g, '')) * { ns: 1, 'µs': 1e3, ms: 1e6, s: 1e9 }[match[2]];
}

/** A duration somewhere in a sentence. */
const DURATION = '(?:\\d+ min \\d+ s|[\\d.,]+ (?:ns|µs|ms|s))';

/** The range of time in the address, in nanoseconds. */
function timeOf(page) {
  const match = /^([\d.]+)(s|ms|us|ns)-([\d.]+)(s|ms|us|ns)$/.exec(parameter(page, 't') ?? '');
  assert(match, `the address has no range of time: ${page.url()}`);
  const size = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };
  return [Number(match[1]) * size[match[2]], Number(match[3]) * size[match[4]]];
}

function near(actual, expected, share, what) {
  assert(Math.abs(actual - expected) <= share * Math.abs(expected) + 1, `${what}: ${actual}, expected about ${expected}`);
}

// ---------------------------------------------------------------------------------------------------------------
// Tests

const tests = [];
const test = (name, run) => tests.push({ name, run });

test('login', async () => {
  // Before there is a cookie, the server answers with 401, which the browser logs.
  const stranger = await open('/', { allowed: [/status of 40[13]/] });
  assert.match(await says(stranger, 'form.login h1', /./), /^Log in$/);
  await stranger.locator('input[name=user]').fill('nobody');
  await stranger.locator('input[name=password]').fill('wrong');
  await stranger.locator('form.login button').click();
  await says(stranger, 'form.login [role=alert]', /password|no users/);
  assert.strictEqual(await stranger.locator('input[name=password]').inputValue(), '', 'the password stays in the form');
  assert.deepStrictEqual(await context.cookies(), [], 'there is a cookie without a login');
  await close(stranger);

  const bad = await open('/#token=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', { allowed: [/status of 40[13]/] });
  await says(bad, 'form.login h1', /^Log in$/);
  assert.strictEqual(new URL(bad.url()).hash, '', 'the wrong token stays in the address');
  await close(bad);

  const page = await open(`/${new URL(given.address).hash}`);
  await until(page, 'the token to vanish from the address', () => location.hash === '');
  await until(page, 'the list of statements', () => document.querySelector('[role=treegrid] [data-row]') !== null);
  const token = new URL(given.address).hash.slice('#token='.length);
  assert(!watched.get(page).requests.some((url) => url.includes(token)), 'the token is in the address of a request');
  const [cookie, ...others] = await context.cookies();
  assert(cookie && others.length === 0 && cookie.httpOnly && cookie.sameSite === 'Strict', `the cookie is ${JSON.stringify(cookie)}`);
  assert.strictEqual(await page.evaluate(() => document.cookie), '', 'scripts can read the cookie');
  await close(page);
});

test('statements', async () => {
  const page = await open('/');
  await until(page, 'the list of statements', () => document.querySelector('[role=treegrid] [data-row]') !== null);
  await settled(page);
  const rows = await rowsOf(page, 'statements');
  hasColumns(rows, 'fingerprint', 'last_query_id', 'runs', 'total_ns');
  assert.strictEqual(await page.locator('[role=treegrid] [data-row]').count(), rows.length, 'the list has other rows than its table');
  const repeated = rows.find((row) => /JOIN users/.test(row.sql) && /follows/.test(row.sql) && Number(row.runs) >= 4);
  assert(repeated, 'statements that differ only in a literal are no single row');

  // The filter: by key, by text, and a text that nothing has.
  await page.keyboard.press('/');
  await page.keyboard.type('unnest');
  await addressHas(page, 'find', 'unnest');
  await until(page, 'only statements with unnest', () => {
    const lines = [...document.querySelectorAll('[role=treegrid] [data-row] code')];
    return lines.length > 0 && lines.every((line) => /unnest/i.test(line.textContent));
  });
  await page.locator('input[type=search]').fill('no statement has this');
  await says(page, '#statements .message', /^No run matches/);
  await page.getByRole('button', { name: 'Clear the filter' }).click();
  await addressHas(page, 'find', null);
  await until(page, 'all statements again', (count) => document.querySelectorAll('[role=treegrid] [data-row]').length >= count, rows.length);
  await settled(page);

  // The keyboard: a row unfolds its runs; the last is compared with the one before; Enter opens a run.
  const line = page.locator(`[data-row="${repeated.fingerprint}"]`);
  await page.keyboard.press('Escape');
  await line.focus();
  await page.keyboard.press('ArrowRight');
  await until(page, 'the runs of the statement', () => document.querySelectorAll('.unfolded [data-row]').length >= 4);
  assert.strictEqual(await line.getAttribute('aria-expanded'), 'true');
  const links = await page.locator('.unfolded a[href*="cmp="]').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
  assert(links.includes(`/q/${ids.off}?cmp=${ids.ended}`), `no run is compared with the one before: ${links.join(' ')}`);
  await page.keyboard.press('j');
  const run = await page.evaluate(() => document.activeElement.closest('[data-row]').dataset.row);
  assert.match(run, /^q\d+$/, 'the focus is on no run');
  await page.keyboard.press('Enter');
  await until(page, 'the page of the run', (id) => location.pathname === `/q/${id}`, run.slice(1));
  await page.goBack();
  await until(page, 'the list of statements', () => document.querySelector('.unfolded a[href*="cmp="]') !== null);
  await page.locator(`.unfolded a[href="/q/${ids.off}?cmp=${ids.calls}"]`).click();
  await says(page, 'h1', new RegExp(`query ${ids.calls}\\b`, 'i'));
  await page.keyboard.press('g');
  await page.keyboard.press('q');
  await until(page, 'the statements, by the keys g q', () => location.pathname === '/' && document.querySelector('#statements') !== null);
  await page.getByRole('button', { name: 'Single runs' }).click();
  await until(page, 'the list of single runs', (id) => document.querySelector(`[role=grid] [data-row="q${id}"]`) !== null, ids.records);
  await close(page);
});

test('verdict', async () => {
  const page = await open(`/q/${ids.records}`);
  // A cause must be named within the bound, and at last what the query takes without it. On a busy machine the wait for
  // a processor may have cost more: then the record is the next finding.
  const first = await says(page, 'h1.verdict', /^.*\w.*\d.*$/, LONG);
  const isFirst = first.startsWith('Row ');
  const [, row] = isFirst
    ? new RegExp(`^Row (\\d+) of ratings cost (?:about )?${DURATION} of ${DURATION}`).exec(first)
    : /Expensive input, main\.ratings row (\d+): /.exec(await text(page, '.summary .also'));
  let elapsed;
  if (isFirst) {
    const sentence = await says(page, 'h1.verdict', new RegExp(`; without it the query takes about ${DURATION}\\.$`), LONG);
    const [, same, cost, whole, without] = new RegExp(`^Row (\\d+) of ratings cost about (${DURATION}) of (${DURATION}); without it the query takes about (${DURATION})\\.$`).exec(sentence);
    assert.strictEqual(same, row, 'the verdict changed while the page loaded');
    assert(nanoseconds(cost) < nanoseconds(whole) && nanoseconds(without) < nanoseconds(whole), sentence);
    elapsed = whole;
  }
  await settled(page);

  // The table behind it, and the parts of the elapsed time, which add up.
  const [verdict] = await rowsOf(page, 'summary');
  hasColumns([verdict], 'operator_id', 'share', 'elapsed_ns');
  if (elapsed) near(nanoseconds(elapsed), Number(verdict.elapsed_ns), 0.01, 'elapsed time of the verdict');
  const parts = await page.locator('.split .bar .part').evaluateAll((all) => all.map((one) => one.title));
  assert(parts.length >= 3, `the elapsed time has only these parts: ${parts.join('; ')}`);
  const total = parts.reduce((all, part) => all + nanoseconds(/: (.*),/.exec(part)[1]), 0);
  near(total, Number(verdict.elapsed_ns), 0.02, 'sum of the parts of the elapsed time');
  assert.match(await text(page, '.split .legend'), /Planning/);

  // The sentence is a link to what it names.
  await page.locator(isFirst ? 'h1.verdict a' : '.summary .also a', { hasText: `ow ${row}` }).click();
  await addressHas(page, 'sel', new RegExp(`(^|,)r:main\\.ratings#${row}$`));
  await addressHas(page, 'tab', 'records');
  await close(page);
});

test('sql and table of a view', async () => {
  const page = await open(`/q/${ids.records}`);
  await says(page, 'h1.verdict', /./);
  for (const panel of ['summary', 'plan', 'activity']) {
    const button = page.locator(`#${panel} > header button`, { hasText: /^SQL$/ });
    await button.click();
    await until(page, `the SQL of ${panel}`, (panel) => {
      const texts = [...document.querySelectorAll(`#${panel} .sqls pre`)].map((one) => one.textContent);
      return texts.length > 0 && texts.every((text) => text.length > 1);
    }, panel);
    for (const sql of await page.locator(`#${panel} .sqls pre`).allTextContents()) {
      assert.match(sql, /SELECT/);
      assert.match(sql, new RegExp(`\\b${ids.records}\\b`), `the SQL does not have the query's id: ${sql}`);
      assert.doesNotMatch(sql, /\$[a-z_]/, `the SQL has a parameter: ${sql}`);
    }
    await button.click();
  }
  // By key: `t` is about the panel that has the focus.
  await page.locator('#plan [role=treeitem]').first().focus();
  await page.keyboard.press('t');
  const rows = await readTable(page, 'plan');
  hasColumns(rows, 'operator_id', 'parent_operator_id', 'fragment_id', 'name', 'kind', 'details', 'rows_in', 'rows_out', 'self_ns', 'share');
  near(sum(rows, 'share'), 1, 0.01, 'sum of the shares of all operators');
  await page.keyboard.press('t');
  const tree = await page.locator('[role=tree]').getAttribute('aria-label');
  assert(tree.startsWith(`Plan of ${rows.length} operators; `), tree);
  const most = rows.reduce((best, row) => (Number(row.share) > Number(best.share) ? row : best));
  assert(tree.includes(`operator ${most.operator_id}, has most of the own time`), tree);
  // `x` copies the SQL.
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin });
  await page.locator('#plan [role=treeitem]').first().focus();
  await page.keyboard.press('x');
  await until(page, 'the SQL in the clipboard', async () => /FROM sys\.operator_contribution/.test(await navigator.clipboard.readText()));
  await close(page);
});

test('plan and selection', async () => {
  const page = await open(`/q/${ids.records}`);
  await until(page, 'the plan', () => document.querySelectorAll('#plan [role=treeitem]').length > 1);
  await settled(page);
  const focused = () => page.evaluate(() => document.activeElement.dataset.key);
  const keys = await page.locator('#plan [role=treeitem]').evaluateAll((all) => all.map((one) => one.dataset.key));
  await page.locator('#plan [role=treeitem][tabindex="0"]').focus();
  await page.keyboard.press('End');
  assert.strictEqual(await focused(), keys[keys.length - 1]);
  await page.keyboard.press('Home');
  assert.strictEqual(await focused(), keys[0]);
  await page.keyboard.press('ArrowDown');
  assert.strictEqual(await focused(), keys[1]);
  await page.keyboard.press('ArrowUp');
  assert.strictEqual(await focused(), keys[0]);

  // Enter selects in the tree, the bar, the views and the address.
  const single = page.locator('#plan [role=treeitem]:not(.chain)').last();
  const operator = await single.getAttribute('data-key');
  await single.focus();
  await page.keyboard.press('Enter');
  await addressHas(page, 'sel', `op:${operator}`);
  await says(page, '[aria-label=Selection]', new RegExp(`${operator} `));
  assert.strictEqual(await single.getAttribute('aria-selected'), 'true');
  await page.keyboard.press('Escape');
  await addressHas(page, 'sel', null);

  // A click selects as well; a click with Shift adds.
  const others = page.locator('#plan [role=treeitem]:not(.chain)');
  const [one, two] = await others.evaluateAll((all) => all.slice(-2).map((item) => item.dataset.key));
  await page.locator(`#plan [data-key="${one}"]`).click();
  await addressHas(page, 'sel', `op:${one}`);
  await page.locator(`#plan [data-key="${two}"]`).click({ modifiers: ['Shift'] });
  await addressHas(page, 'sel', `op:${one},op:${two}`);
  assert.strictEqual(await page.locator('#plan [role=treeitem][aria-selected=true]').count(), 2);
  await until(page, 'the operators to be selected in the overview', () => document.querySelectorAll('#activity .layers [aria-pressed=true]').length === 2);
  await page.keyboard.press('6');
  await addressHas(page, 'tab', 'operator');
  await until(page, 'both operators in tab Operator', (both) => both.every((id) => document.querySelector(`#operator-${id}`) !== null), [one, two]);

  // The address is the state.
  await page.reload();
  await until(page, 'the selection after a reload', (both) => both.every((id) => document.querySelector(`#operator-${id}`) !== null
    && document.querySelector(`#plan [data-key="${id}"]`)?.getAttribute('aria-selected') === 'true'), [one, two]);
  assert.strictEqual(parameter(page, 'tab'), 'operator');
  await page.keyboard.press('Escape');
  await addressHas(page, 'sel', null);
  assert.strictEqual(await page.locator('#plan [aria-selected=true]').count(), 0);
  await page.goBack();
  await addressHas(page, 'tab', null);

  // Search.
  await page.keyboard.press('/');
  await page.keyboard.type('ratings');
  await says(page, '#plan [role=status]', /^[1-9]\d* of \d+$/);
  await page.keyboard.press('Enter');
  await addressHas(page, 'sel', /^op:\d+/);
  await page.keyboard.press('Escape');
  await until(page, 'the search to be empty', () => document.querySelector('#plan input[type=search]').value === '');
  await close(page);
});

test('overview', async () => {
  const page = await open(`/q/${ids.calls}`);
  await until(page, 'the overview', () => document.querySelectorAll('#activity canvas').length > 2);
  await settled(page);
  const rows = await rowsOf(page, 'activity');
  hasColumns(rows, 'panel', 'layer', 'bin', 'at_ns', 'active_ns', 'open_calls');
  const strip = page.locator('#activity [role=slider]');
  const end = Number(await strip.getAttribute('aria-valuemax'));

  // The pointer selects a range of time.
  const canvas = page.locator('#activity .content canvas:not([role=slider] canvas)').first();
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  const [from, to] = [0.4, 0.7].map((part) => box.x + 58 + part * (box.width - 68));
  await page.mouse.move(from, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move((from + to) / 2, box.y + box.height / 2);
  await page.mouse.move(to, box.y + box.height / 2);
  await page.mouse.up();
  await addressHas(page, 't', /./);
  const brushed = timeOf(page);
  near(brushed[0], 0.4 * end, 0.05, 'start of the range');
  near(brushed[1], 0.7 * end, 0.05, 'end of the range');
  await until(page, 'the strip to say which range is shown', () => / to .* of /.test(document.querySelector('#activity [role=slider]').getAttribute('aria-valuetext')));
  await says(page, '[aria-label=Selection]', /time/);
  await settled(page);

  // Shift and arrows move its ends.
  const written = parameter(page, 't');
  await page.keyboard.press('Shift+ArrowLeft');
  await until(page, 'the address to have another range', (old) => new URL(location.href).searchParams.get('t') !== old, written);
  const shorter = timeOf(page);
  assert(Math.abs(shorter[0] - brushed[0]) <= 1 && shorter[1] < brushed[1], `${brushed} became ${shorter}`);
  await settled(page);
  const again = parameter(page, 't');
  await page.keyboard.press('Shift+ArrowUp');
  await until(page, 'the address to have another range', (old) => new URL(location.href).searchParams.get('t') !== old, again);
  assert(timeOf(page)[0] > shorter[0], `${shorter} became ${timeOf(page)}`);
  await page.reload();
  await until(page, 'the range after a reload', () => / of /.test(document.querySelector('#activity [role=slider]')?.getAttribute('aria-valuetext') ?? ''));
  await page.keyboard.press('Escape');
  await addressHas(page, 't', null);

  // One panel for each operator, or worker.
  await page.locator('#activity').getByRole('button', { name: 'Operator', exact: true }).click();
  await addressHas(page, 'by', 'operator');
  await page.locator('#activity').getByRole('button', { name: 'Worker', exact: true }).click();
  await addressHas(page, 'by', 'worker');
  await says(page, '#activity', size === 'cluster' ? /Worker 3/ : /Master/);
  await settled(page);

  // The tasks of a fragment.
  assert.match(await text(page, '#stragglers .note'), /Fragment \d+ is one task|The last of \d+ tasks/);
  hasColumns(await rowsOf(page, 'stragglers'), 'fragment_id', 'worker_id', 'partition', 'work_ns');

  // Level counters draws the same from totals, and says so.
  await visit(page, `/q/${ids.counters}`);
  await says(page, '#activity .note', /([Tt]he time of each call is not known|Single calls are not known).*EXPLAIN PROFILE QUERY/);
  hasColumns(await rowsOf(page, 'activity'), 'panel', 'layer', 'self_ns');
  assert(await page.locator('#activity canvas').count() > 2, 'level counters draws nothing');
  await close(page);
});

test('traces', async () => {
  const page = await open(`/q/${ids.calls}?tab=traces`);
  const note = await says(page, '#traces .note', new RegExp(`^The longest call took ${DURATION}: `));
  await settled(page);
  const rows = await rowsOf(page, 'traces');
  hasColumns(rows, 'worker_id', 'partition', 'operator_id', 'at_ns', 'width_ns', 'calls', 'rows');
  const longest = Math.max(...rows.filter((row) => row.whole === 'true' && row.calls === '1').map((row) => Number(row.width_ns)));
  if (rows.length < 500) near(nanoseconds(new RegExp(`took (${DURATION}):`).exec(note)[1]), longest, 0.01, 'the longest call');
  const plan = new Set((await rowsOf(page, 'plan')).map((row) => row.operator_id));
  assert(rows.every((row) => plan.has(row.operator_id)), 'a call is of an operator that is not in the plan');

  // w zooms in, d moves to later.
  await page.locator('#traces [role=slider]').focus();
  await page.keyboard.press('w');
  await addressHas(page, 't', /./);
  await settled(page);
  const zoomed = timeOf(page);
  const end = Number(await page.locator('#traces [role=slider]').getAttribute('aria-valuemax'));
  assert(zoomed[0] > 0 && zoomed[1] < end && zoomed[1] - zoomed[0] < 0.95 * end, `w shows ${zoomed} of ${end}`);
  const written = parameter(page, 't');
  await page.keyboard.press('d');
  await until(page, 'the range to move', (old) => new URL(location.href).searchParams.get('t') !== old, written);
  await settled(page);
  const moved = timeOf(page);
  assert(moved[0] > zoomed[0] && moved[1] > zoomed[1], `d moved ${zoomed} to ${moved}`);
  near(moved[1] - moved[0], zoomed[1] - zoomed[0], 0.02, 'length of the range after moving');
  await page.keyboard.press('0');
  await addressHas(page, 't', null);

  // Lanes of one fragment together.
  await page.locator('#traces').getByRole('button', { name: 'By fragment' }).click();
  await addressHas(page, 'lanes', 'fragment');
  await says(page, '#traces', /Each lane is a task/);
  // Without calls the page says how to record them.
  await visit(page, `/q/${ids.counters}?tab=traces`);
  assert.match(await text(page, '#traces'), new RegExp(`Level counters records no single calls\\. Run EXPLAIN PROFILE QUERY ${ids.counters}`));
  await close(page);
});

test('communication', async () => {
  const page = await open(`/q/${ids.calls}?tab=communication`);
  await says(page, '#matrix .headline', /./);
  await settled(page);
  const exchanges = await rowsOf(page, 'exchanges');
  hasColumns(exchanges, 'exchange_id', 'rows', 'bytes', 'receivers', 'crossed_rows');
  assert.strictEqual(await page.locator('table.exchanges tbody tr').count(), exchanges.length);
  // The sums are of the cells.
  const cells = await rowsOf(page, 'matrix');
  hasColumns(cells, 'source_worker', 'destination_worker', 'rows');
  const total = Number((await text(page, '#matrix .sums li b')).replace(/[^\d]/g, ''));
  assert.strictEqual(sum(cells, 'rows'), total);
  const crossed = cells.some((cell) => cell.source_worker !== cell.destination_worker);
  assert.match(await text(page, '#matrix .sums'), size === 'cluster' ? (crossed ? /crossed workers/ : /stayed on their worker/) : /stayed in one process/);

  // Another exchange, by the list.
  const chosen = /^\d+/.exec(await text(page, 'table.exchanges tr.chosen button'))[0];
  const other = page.locator('table.exchanges tbody tr:not(.chosen) button').first();
  const id = /^\d+/.exec(await other.innerText())[0];
  await other.click();
  await addressHas(page, 'sel', `op:${id}`);
  await says(page, '#matrix h2', new RegExp(`^Exchange ${id},`));
  // Back to the most uneven one: it has several cells.
  await page.locator('table.exchanges button', { hasText: new RegExp(`^${chosen} `) }).click();
  await says(page, '#matrix h2', new RegExp(`^Exchange ${chosen},`));
  await page.keyboard.press('Escape');
  await addressHas(page, 'sel', null);
  await settled(page);

  // Arrow keys read the cells or bars, Enter selects what receives or sends.
  const live = 'p[aria-live=polite].visually-hidden';
  await page.locator('#matrix .matrix-cells').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowDown');
  await says(page, live, /(got|sent) ([\d,.]+ \w+|nothing)/);
  await page.keyboard.press('Home');
  await frame(page);
  const first = await says(page, live, /(got|sent) /);
  await page.keyboard.press('End');
  await until(page, 'the last cell or bar to say something else than the first', ([live, first]) => document.querySelector(live).innerText.trim() !== first, [live, first]);
  await says(page, live, /(got|sent) /);
  await page.keyboard.press('Enter');
  await addressHas(page, 'sel', /^[pw]:\d+$/);
  await page.keyboard.press('Escape');

  // m is the next order.
  for (const order of ['amount', 'similarity', null]) {
    await page.keyboard.press('m');
    await addressHas(page, 'matrix', order);
  }
  await page.locator('#matrix').getByRole('button', { name: 'Bytes' }).click();
  await addressHas(page, 'matrix', 'bytes');
  await says(page, '#matrix .sums', /(B|KiB|MiB) in all/);
  await close(page);
});

test('records', async () => {
  const page = await open(`/q/${ids.records}?tab=records`);
  const finding = await says(page, '#record-histogram .note', /^1 record of [\d,]+ \(.*\) took \d+ % of the /);
  await until(page, 'the dearest records with their values', () => document.querySelector('#record-dearest tbody td.value') !== null);
  assert(Number(/took (\d+) %/.exec(finding)[1]) >= 50, finding);
  const bins = await rowsOf(page, 'record-histogram');
  hasColumns(bins, 'bin', 'records', 'time_ns');

  // The dearest is the one with the giant text.
  const dearest = await rowsOf(page, 'record-dearest');
  hasColumns(dearest, 'row_id', 'latency_ns', 'share');
  const row = dearest[0].row_id;
  assert(Number(dearest[0].latency_ns) > 10 * Number(dearest[1].latency_ns), 'the second record is nearly as dear');
  const characters = await page.locator('#record-dearest tbody tr').first().locator('.badge[title$="characters"]').getAttribute('title');
  assert(Number(characters.replace(/[^\d]/g, '')) >= 100_000, `the dearest record has ${characters}`);

  // The keyboard selects a range of latencies: the first bin from the right is the one record.
  await page.locator('#record-histogram .brush').focus();
  await page.keyboard.press('ArrowLeft');
  await addressHas(page, 'lat', /./);
  await says(page, '#record-dearest .note', /^1 of [\d,]+ records /);
  await page.locator('#record-histogram .brush').focus();
  await page.keyboard.press('Escape');
  await addressHas(page, 'lat', null);

  // Its card.
  await page.getByRole('button', { name: 'Show the dearest' }).click();
  await addressHas(page, 'sel', `r:main.ratings#${row}`);
  await says(page, `#record-${row} h2`, new RegExp(`^Row ${row} of ratings$`));
  await says(page, `#record-${row} .facts`, /movie/);
  await says(page, `#record-${row} .note`, new RegExp(`Expressions took ${DURATION} on it`));
  await until(page, 'what was made of the record', (row) => document.querySelectorAll(`#record-${row} .chips button`).length > 0, row);

  // What if it were not there: an estimate, then the truth.
  await page.locator(`#record-${row} input[type=checkbox]`).check();
  await page.locator('.later').last().scrollIntoViewIfNeeded().catch(() => {});
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await until(page, 'the panel What if', () => document.querySelector('#what-if') !== null);
  await says(page, '#what-if .estimate .after', new RegExp(`${DURATION}$`), LONG);
  await page.locator('#what-if').scrollIntoViewIfNeeded();
  await page.getByRole('button', { name: /^Verify/ }).click();
  const measured = await says(page, '#what-if .verified', new RegExp(`Measured ${DURATION} Without ratings: row ${row} \\(1 row\\) the query took`), LONG);
  const [, after, before] = new RegExp(`the query took (${DURATION}) instead of (${DURATION})`).exec(measured);
  // How they compare is noise where the query takes little: what is shown must be what the new run has.
  assert(nanoseconds(before) > 0, measured);
  assert.match(measured, new RegExp(`The estimate was ${DURATION}`));
  assert.match(await text(page, '#what-if .verified pre'), /ratings/);
  const link = await page.locator('#what-if .verified a').getAttribute('href');
  assert.match(link, /^\/q\/\d+$/);
  assert(Number(link.slice(3)) > ids.failed, `the new run is ${link}`);

  // Lineage: nodes have the focus and are selected by keys.
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await until(page, 'the lineage', () => document.querySelectorAll('#record-lineage [id^="lineage-"]').length > 1, undefined, LONG);
  const nodes = page.locator('#record-lineage [id^="lineage-"]');
  await nodes.first().focus();
  const at = () => page.evaluate(() => document.activeElement.id);
  const begun = await at();
  assert.match(begun, /^lineage-/, 'a node of the lineage takes no focus');
  await page.keyboard.press('ArrowRight');
  await until(page, 'the focus on the next node of the lineage', (begun) => document.activeElement.id.startsWith('lineage-') && document.activeElement.id !== begun, begun);
  await says(page, '#record-lineage .note', new RegExp(DURATION));

  await page.locator('#what-if .verified a').click();
  await says(page, 'h1.verdict', /./, LONG);
  assert.strictEqual(new URL(page.url()).pathname, link);
  const [run] = await rowsOf(page, 'summary');
  near(nanoseconds(after), Number(run.elapsed_ns), 0.02, 'measured time and elapsed time of the new run');
  await close(page);
});

test('diagnoses', async () => {
  const page = await open(`/q/${ids.records}?tab=diagnoses`);
  await until(page, 'the findings', () => document.querySelector('#diagnoses .finding') !== null);
  await settled(page, LONG);
  const rows = await rowsOf(page, 'diagnoses');
  hasColumns(rows, 'rule', 'severity', 'subject', 'wasted_ns', 'advice', 'evidence_sql');
  assert.strictEqual(await page.locator('#diagnoses .finding').count(), rows.length);
  assert(rows.slice(0, 3).some((row) => row.rule === 'expensive input'), 'the record is not among the first findings');
  const first = page.locator('#diagnoses .finding', { has: page.locator('h3', { hasText: 'Expensive input' }) }).first();
  assert.match(await first.innerText(), /Row \d+ of ratings/);
  assert.match(await first.locator('.cost').first().innerText(), new RegExp(`${DURATION}.*of the query`));
  await first.locator('summary').first().click();
  assert.match(await first.locator('pre').first().innerText(), new RegExp(`\\b${ids.records}\\b`));

  // Show selects what the finding is about; the key goes from one to the next.
  await first.getByRole('button', { name: /^Show/ }).first().click();
  await addressHas(page, 'tab', 'records');
  await addressHas(page, 'sel', /(^|,)r:main\.ratings#\d+$/);
  for (const row of rows.slice(0, 2)) {
    await page.keyboard.press('.');
    await addressHas(page, 'finding', row.number);
    const isPlaced = ['operator_id', 'fragment_id', 'worker_id', 'partition', 'row_id'].some((column) => row[column] !== 'NULL');
    assert(!isPlaced || parameter(page, 'sel') !== null, `finding ${row.rule} selects nothing`);
  }
  await close(page);
});

test('operator', async () => {
  const page = await open(`/q/${ids.calls}?tab=operator`);
  await says(page, '#operator .message', /^Select an operator in the plan/);
  const plan = await rowsOf(page, 'plan');
  const join = plan.find((row) => row.kind === 'join');
  assert(join, 'the plan has no join');
  await page.locator('.tops button').first().click();
  await addressHas(page, 'sel', /^op:\d+$/);
  await visit(page, `/q/${ids.calls}?tab=operator&sel=op:${join.operator_id}`);
  const panel = `operator-${join.operator_id}`;
  await says(page, `#${panel} h2`, /join/i);
  // The tasks add up to what the plan says of the operator.
  const tasks = await rowsOf(page, panel);
  hasColumns(tasks, 'worker_id', 'partition', 'calls', 'rows_out', 'self_ns');
  near(sum(tasks, 'self_ns'), Number(join.self_ns), 0.001, 'own time of all tasks');
  assert.strictEqual(sum(tasks, 'rows_out'), Number(join.rows_out));
  if (size === 'cluster') assert(new Set(tasks.map((task) => task.worker_id)).size >= 3, 'the join ran on fewer than three workers');
  // A third of the rows of one input has one key.
  const heavy = await says(page, `#${panel} [aria-label="Heavy keys"]`, /Key 7 has about \d+ % of the rows of one input/);
  near(Number(/about (\d+) %/.exec(heavy)[1]), 33, 0.15, 'share of key 7');
  await close(page);
});

test('compare', async () => {
  const page = await open(`/q/${ids.calls}`);
  await says(page, 'h1.verdict', /./);
  await page.keyboard.press('c');
  await until(page, 'the comparison, by key c', () => /cmp=/.test(location.search));
  await visit(page, `/q/${ids.calls}?cmp=${ids.previous}`);
  const sentence = await says(page, '.compared h1', new RegExp(`^Query ${ids.calls} took .* query ${ids.previous} \\(${DURATION}, before ${DURATION}\\)`));
  const [, now, old] = new RegExp(`\\((${DURATION}), before (${DURATION})\\)`).exec(sentence);
  const runs = await rowsOf(page, 'totals');
  hasColumns(runs, 'query_id', 'planning_ns', 'execution_ns');
  const elapsed = (id) => {
    const run = runs.find((row) => Number(row.query_id) === id);
    return Number(run.planning_ns) + Number(run.execution_ns);
  };
  near(nanoseconds(now), elapsed(ids.calls), 0.01, 'elapsed time of the newer run');
  near(nanoseconds(old), elapsed(ids.previous), 0.01, 'elapsed time of the older run');
  hasColumns(await rowsOf(page, 'waterfall'), 'query_id', 'operator_id', 'elapsed_ns');
  assert(await page.locator('#plans tbody tr').count() > 3, 'the operators are not side by side');
  assert.match(await text(page, '#plans .note'), /Both runs have the same plan/);
  // What differs in the statements.
  assert.match(await text(page, '#statements h2'), /other literals/);
  assert.deepStrictEqual(await page.locator('#statements mark').allTextContents(), ['10', '11']);
  await page.keyboard.press('c');
  await until(page, 'the two runs to be swapped', ([a, b]) => location.pathname + location.search === `/q/${a}?cmp=${b}`, [ids.previous, ids.calls]);
  // Levels that differ do not compare well, and runs without a profile have times only.
  await visit(page, `/q/${ids.counters}?cmp=${ids.calls}`);
  await says(page, '.remarks', /Profiled differently: .*level calls.*level counters/);
  await visit(page, `/q/${ids.off}?cmp=${ids.counters}`);
  await says(page, '.remarks', new RegExp(`Query ${ids.off} ran at level off: it has times only`));
  await close(page);
});

test('live', async () => {
  const page = await open('/live');
  await says(page, '#live .note', /(No statement runs now|statements? running)/);
  await says(page, '#live', /Statements appear here as soon as they start|Query \d+/);
  await close(page);
});

test('cluster', async () => {
  const page = await open('/cluster');
  await until(page, 'the processes', () => document.querySelector('#workers tbody tr') !== null);
  await settled(page);
  const rows = await rowsOf(page, 'workers');
  hasColumns(rows, 'worker_id', 'state', 'address');
  assert.strictEqual(await page.locator('#workers .content tbody tr').count(), rows.length);
  if (size === 'cluster') {
    assert.strictEqual(rows.length, 4, 'the master and three workers');
    assert.match(await text(page, '#workers .note'), /worker/i);
    await page.locator('#workers tbody button', { hasText: 'Worker 2' }).click();
    await addressHas(page, 'sel', 'w:2');
  } else {
    assert.strictEqual(rows.length, 1);
    assert.match(await text(page, '#workers .note'), /^There are no workers/);
  }
  hasColumns(await rowsOf(page, 'metrics'), 'worker_id', 'metric', 'at_ns', 'mean');
  assert(await page.locator('#metrics canvas').count() > 1, 'readings of the nodes are not drawn');
  await says(page, '#alerts', /No alert|since/);
  if (size === 'cluster') {
    await says(page, '#links .note', /[Ll]ink|round trip/);
    hasColumns(await rowsOf(page, 'links'), 'worker_id', 'peer_id', 'rtt_ns', 'loss');
  }
  // Parts of the page are loaded when they are first shown.
  const loaded = watched.get(page).requests.map((url) => new URL(url).pathname);
  assert(loaded.includes('/cluster.js') && !loaded.includes('/compare.js') && !loaded.includes('/records.js'), loaded.join(' '));
  await close(page);
});

test('incomplete profiles', async () => {
  const page = await open(`/q/${ids.failed}`);
  await says(page, 'h1.verdict', new RegExp(`^Failed after ${DURATION}: .*zero`));
  await says(page, '.until', /^Until then: /);
  assert.match(await text(page, '#summary .tools'), /failed/);

  await visit(page, `/q/${ids.off}`);
  await says(page, 'h1.verdict', new RegExp(`^The query took ${DURATION}\\. Level off recorded nothing else\\.$`));
  assert.match(await text(page, '#summary'), new RegExp(`EXPLAIN PROFILE QUERY ${ids.off}`));
  assert.match(await text(page, '#plan'), /Level off records no operators/);
  assert.match(await text(page, '#activity'), /Level off records no work/);

  await visit(page, `/q/${ids.counters}?tab=records`);
  assert.match(await text(page, '#view'), new RegExp(`Level counters has no records.*EXPLAIN PROFILE QUERY ${ids.counters}`));
  await page.keyboard.press('5');
  await says(page, '#diagnoses .note', /Level counters does not look at single records/);

  await visit(page, `/q/${ids.recursive}`);
  await until(page, 'a recursive query in the plan', () => [...document.querySelectorAll('#plan [role=treeitem]')].some((item) => /Recursive query r/.test(item.textContent)));
  // On a busy machine the verdict is a finding about the machine, whose sentence may name other times.
  await says(page, 'h1.verdict', new RegExp(DURATION));

  await visit(page, '/q/999999');
  assert.match(await text(page, 'main'), /^There is no query 999999\./);
  await visit(page, '/nowhere');
  assert.match(await text(page, 'main'), /^There is no page \/nowhere\./);
  await close(page);
});

test('exported file', async () => {
  const page = await open(file);
  await says(page, '#summary', new RegExp(`(Row \\d+ of ratings cost (?:about )?${DURATION} of ${DURATION}|Expensive input, main.ratings row \\d+: )`));
  await until(page, 'the plan', () => document.querySelectorAll('#plan [role=treeitem]').length > 1);
  await until(page, 'the overview', () => document.querySelectorAll('#activity canvas').length > 2);
  hasColumns(await rowsOf(page, 'plan'), 'operator_id', 'self_ns');
  hasColumns(await rowsOf(page, 'activity'), 'panel', 'layer', 'bin', 'active_ns');
  assert.match(await text(page, 'header.top'), new RegExp(`exported profile of query ${ids.records}`));
  // All tabs, by key; the address behind # is the state.
  for (const [key, tab, panel] of [['2', 'communication', '#exchanges'], ['3', 'traces', '#traces'], ['4', 'records', '#record-histogram'], ['5', 'diagnoses', '#diagnoses'], ['6', 'operator', '#operator']]) {
    await page.keyboard.press(key);
    await addressHas(page, 'tab', tab);
    await until(page, `tab ${tab} of the file`, (panel) => document.querySelector(panel) !== null, panel);
    await settled(page);
    assert.strictEqual(await page.locator(`${panel} .message.bad`).count(), 0, `tab ${tab} of the file: ${await text(page, panel)}`);
  }
  await page.locator('#plan [role=treeitem]:not(.chain)').last().click();
  await addressHas(page, 'sel', /^op:\d+$/);
  await page.reload();
  await addressHas(page, 'sel', /^op:\d+$/);
  const others = watched.get(page).requests.filter((url) => url.split('#')[0] !== file && !url.startsWith('data:'));
  assert.deepStrictEqual(others, [], 'the file asks for something');
  await close(page);
});

test('colours and keys', async () => {
  const page = await open('/live', { scheme: 'dark' });
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  /** 0 is black, 255 white. */
  const brightness = () => page.evaluate(() => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = getComputedStyle(document.body).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (r + g + b) / 3;
  });
  await says(page, '#live h2', /./);
  assert.strictEqual(await theme(), 'dark');
  assert(await brightness() < 60, `the page is ${await brightness()} bright in the dark`);
  await page.emulateMedia({ colorScheme: 'light' });
  await until(page, 'light colours, as the system has them', () => document.documentElement.dataset.theme === 'light');
  assert(await brightness() > 200);
  await page.locator('header.top').getByRole('button', { name: 'Dark' }).click();
  assert.strictEqual(await theme(), 'dark');
  await page.reload();
  await until(page, 'the colours that were chosen, after a reload', () => document.documentElement.dataset.theme === 'dark');
  await page.locator('header.top').getByRole('button', { name: 'Light' }).click();
  assert.strictEqual(await theme(), 'light');
  await page.evaluate(() => localStorage.removeItem('theme'));

  await page.keyboard.press('?');
  await until(page, 'the list of keys', () => document.querySelector('dialog[open] dl.keys') !== null);
  assert.match(await text(page, 'dialog[open]'), /Show these keys.*Clear the innermost part of the selection/);
  await page.keyboard.press('Escape');
  await until(page, 'the list of keys to close', () => document.querySelector('dialog[open]') === null);
  await page.getByRole('button', { name: 'Keys' }).click();
  await until(page, 'the list of keys, by its button', () => document.querySelector('dialog[open]') !== null);
  await page.locator('dialog button').click();
  await until(page, 'the list of keys to close', () => document.querySelector('dialog[open]') === null);
  await close(page);
});

/** Serious and critical findings of axe: all rules in light, contrast in dark as well. */
async function audit(page, name) {
  const found = [];
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    await until(page, `${scheme} colours`, (scheme) => document.documentElement.dataset.theme === scheme, scheme);
    await frame(page);
    const axe = new AxeBuilder({ page }).setLegacyMode();
    if (scheme === 'dark') axe.withRules(['color-contrast']);
    for (const { id, impact, nodes } of (await axe.analyze()).violations) {
      if (impact === 'serious' || impact === 'critical') {
        found.push(`${name}, ${scheme}: ${impact} ${id}, ${nodes.length} times: ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary.replace(/\s+/g, ' ').slice(0, 200)}`);
      }
    }
  }
  return found;
}

test('accessible pages', async () => {
  const page = await open('/');
  await until(page, 'the list of statements', () => document.querySelector('[role=treegrid] [data-row]') !== null);
  await settled(page);
  const found = await audit(page, 'statements');
  for (const [name, where] of [['compare', `/q/${ids.calls}?cmp=${ids.previous}`], ['live', '/live'], ['cluster', '/cluster'], ['failed', `/q/${ids.failed}`], ['off', `/q/${ids.off}`]]) {
    await visit(page, where);
    found.push(...await audit(page, name));
  }
  await close(page);
  assert.deepStrictEqual(found, []);
});

test('accessible tabs', async () => {
  const found = [];
  const page = await open(`/q/${ids.records}`);
  await until(page, 'the plan', () => document.querySelectorAll('#plan [role=treeitem]').length > 1);
  for (const tab of ['overview', 'communication', 'traces', 'records', 'diagnoses', 'operator']) {
    await page.locator(`#tab-${tab}`).click();
    await settled(page, LONG);
    if (tab === 'records') {
      await page.getByRole('button', { name: 'Show the dearest' }).click();
      await until(page, 'the card of the dearest record', () => document.querySelector('.cards .card') !== null);
      // What loads when it comes near the screen.
      for (const panel of ['#what-if', '#record-lineage']) {
        await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
        await until(page, panel, (panel) => document.querySelector(panel) !== null, panel);
      }
      await settled(page, LONG);
    }
    if (tab === 'operator') {
      await page.locator('#plan [role=treeitem]:not(.chain)').last().click();
      await until(page, 'the panel of the operator', () => document.querySelector('.operator .facts') !== null);
      await settled(page);
    }
    found.push(...await audit(page, tab));
  }
  await close(page);
  assert.deepStrictEqual(found, []);
});

test('narrow pages', async () => {
  const page = await open('/', { wide: 640 });
  await until(page, 'the list of statements', () => document.querySelector('[role=treegrid] [data-row]') !== null);
  const wide = [];
  const measure = async (name) => {
    await settled(page, LONG);
    const [has, may] = await page.evaluate(() => [document.scrollingElement.scrollWidth, innerWidth]);
    if (has > may + 1) wide.push(`${name} is ${has} px wide`);
  };
  await measure('statements');
  await page.goto(`${origin}/q/${ids.records}`);
  await until(page, 'the plan', () => document.querySelectorAll('#plan [role=treeitem]').length > 1);
  for (const tab of ['overview', 'communication', 'traces', 'records', 'diagnoses', 'operator']) {
    await page.locator(`#tab-${tab}`).click();
    await measure(tab);
  }
  await close(page);
  assert.deepStrictEqual(wide, [], 'the document scrolls to the right at 640 px');
});

if (ids.markup) {
  test('markup in a statement', async () => {
    const page = await open('/?find=onerror');
    await until(page, 'the statement', () => [...document.querySelectorAll('[data-row] code')].some((line) => line.textContent.includes('<img src=x onerror=')));
    assert.strictEqual(await page.locator('img').count(), 0);
    await visit(page, `/q/${ids.markup}`);
    assert.match(await page.locator('details.text pre').textContent(), /<img src=x onerror=/);
    assert.strictEqual(await page.locator('img').count(), 0);
    assert.strictEqual(await page.title(), 'Skewer');
    await close(page);
  });
}

if (given.pictures) {
  test('pictures', async () => {
    const take = (page, name) => page.screenshot({ path: `${given.pictures}/${name}.png` });
    const page = await open('/');
    await until(page, 'the list of statements', () => document.querySelector('[role=treegrid] [data-row]') !== null);
    for (const [name, where] of [
      ['home', '/'], ['cluster', '/cluster'], ['compare', `/q/${ids.calls}?cmp=${ids.previous}`],
      ['communication', `/q/${ids.calls}?tab=communication`], ['traces', `/q/${ids.calls}?tab=traces`], ['records', `/q/${ids.records}?tab=records`], ['query', `/q/${ids.records}`],
    ]) {
      await page.goto(origin + where);
      await settled(page, LONG);
      await frame(page);
      await take(page, name);
    }
    await page.emulateMedia({ colorScheme: 'dark' });
    await until(page, 'dark colours', () => document.documentElement.dataset.theme === 'dark');
    await frame(page);
    await take(page, 'query-dark');
    await close(page);
  });
}

test('views within the limit of time', async () => {
  assert.deepStrictEqual([...slow], []);
});

// ---------------------------------------------------------------------------------------------------------------

/** The file of a program: playwright-core does not look into PATH. */
function program(name) {
  if (name.includes('/')) return name;
  return process.env.PATH.split(':').map((directory) => path.join(directory, name)).find((file) => fs.existsSync(file)) ?? name;
}

/** Tests of looks: they are the same whoever runs the queries. */
const LOOKS = /^(accessible|narrow|colours|markup|pictures)/;

async function main() {
  context = await chromium.launchPersistentContext(given.profile, {
    executablePath: program(given.chromium), headless: true, viewport: { width: 1280, height: 900 },
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  // What the policy refuses is an error like any other.
  await context.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => {
      console.error(`the content security policy refused ${event.blockedURI} (${event.violatedDirective}) ${event.sample}`);
    });
  });
  await context.route((url) => !isOwn(url.href), (route) => route.abort());
  const failures = [];
  try {
    for (const { name, run } of tests) {
      // All tests need the login.
      const isWanted = given.part === 'all' || (given.part === 'distributed' ? !LOOKS.test(name) : name.startsWith(given.part));
      if (name !== 'login' && !isWanted) continue;
      const begun = Date.now();
      try {
        await run();
        console.log(`${name} ok`);
      } catch (error) {
        failures.push(`${name} failed: ${error.stack ?? error}`);
        for (const page of context.pages()) {
          const faults = watched.get(page)?.faults ?? [];
          if (faults.length) failures.push(`  its page had faults: ${faults.join('; ')}`);
          if (watched.has(page)) {
            if (given.pictures) await page.screenshot({ path: `${given.pictures}/failed-${name.replace(/ /g, '-')}.png` }).catch(() => {});
            await page.close().catch(() => {});
          }
        }
      }
      console.error(`${name}: ${((Date.now() - begun) / 1000).toFixed(1)} s`);
    }
  } finally {
    await context.close();
  }
  if (failures.length) {
    console.error(`\n${failures.join('\n\n')}`);
    process.exitCode = 1;
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
