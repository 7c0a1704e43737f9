// The view of rate limits: #/limits, one limit #/limits/pay, and one key of a limit
// #/limits/pay~refund:wx.

import { ask, request, tell } from './acts.js';
import { Charts, STEPS } from './chart.js';
import { duration, fine, make, number, put, rate } from './draw.js';
import { cutPage, fillLink, Table } from './table.js';
import { register } from './views.js';
import { Watch } from './watch.js';

const section = document.getElementById('limits');
const $ = selector => section.querySelector(selector);
const part = name => $(`[data-part=${name}]`);
const watch = new Watch(section, look);

const UNLIMITED = -1;
const MINUTE = 60000,
  HOUR = 60 * MINUTE,
  RECENT_MS = 5000;
const CHARTS = [
  {
    title: 'Decisions',
    unit: 'calls a minute',
    text: rate,
    steps: STEPS.whole,
    series: [
      { name: 'Allowed', kind: 'line', of: row => row.allowed },
      { name: 'Refused', kind: 'second', of: row => row.refused },
      { name: 'Made to wait', kind: 'limit', of: row => row.paced },
    ],
  },
];
const RANGES = [
  ['15 min', HOUR / 4],
  ['1 h', HOUR],
  ['3 h', 3 * HOUR],
];
const ALGORITHMS = {
  fixed_window: 'fixed window',
  sliding_window: 'sliding window',
  token_bucket: 'token bucket',
  leaky_bucket: 'leaky bucket',
  concurrency: 'concurrency',
};

let rules = [],
  values = { file: {}, set: {} },
  recent = { minutes: [], refused_keys: [] },
  recentAt = 0,
  charts = null,
  limit = null,
  key = null,
  state = null;

const path = (...names) =>
  ['/v1/limits', ...names.map(encodeURIComponent)].join('/');
const address = (name, of) =>
  `#/limits/${encodeURIComponent(of === undefined ? name : `${name}~${of}`)}`;
const rule = () => rules.find(each => each.name === limit);
const isNone = value => value == null || value === UNLIMITED;
const calls = value =>
  isNone(value)
    ? 'no limit'
    : `${number(value)} ${value === 1 ? 'call' : 'calls'}`;
const named = of => of || 'all calls without a key';
const lasting = seconds => (seconds < 60 ? `${seconds} s` : duration(seconds));
const configured = of => values.file[of] ?? rule().limit;

// Describes the limit with its window: 5 calls in 60 s, 3 calls at a time.
function rated(value, { algorithm, window: seconds }) {
  if (isNone(value)) return 'no limit';
  return algorithm === 'concurrency'
    ? `${calls(value)} at a time`
    : `${calls(value)} in ${lasting(seconds)}`;
}

function said(each) {
  const over =
    each.on_exceed === 'pace'
      ? `A call over the limit waits for its moment, ${lasting(each.max_wait)} at most.`
      : 'A call over the limit is refused.';
  const lease =
    each.algorithm === 'concurrency'
      ? ` A permit ends after ${lasting(each.lease)} if it is not given back.`
      : '';
  const burst = each.burst
    ? `, ${number(each.burst)} at once after a rest`
    : '';
  return `${ALGORITHMS[each.algorithm]}: ${rated(each.limit, each)}${burst}, counted for ${counted(each)}. ${over}${lease}`;
}

const counted = each =>
  each.key ? `each ${each.key}` : 'each key that the caller or nginx gives';

const list = {
  all: new Table({
    label: 'Limits',
    key: each => each.name,
    empty: () => '',
    columns: [
      {
        title: 'Limit',
        fill: (cell, each) => fillLink(cell, each.name, address(each.name)),
      },
      {
        title: 'Algorithm',
        text: each => ALGORITHMS[each.algorithm],
      },
      {
        title: 'Rate',
        text: each => rated(each.limit, each),
      },
      {
        title: 'Over it',
        text: each =>
          each.on_exceed === 'pace'
            ? `waits, ${lasting(each.max_wait)} at most`
            : 'refused',
      },
      { title: 'What counts', text: each => counted(each) },
      {
        title: 'Without Redis',
        text: each =>
          each.on_store_failure === 'admit' ? 'may go' : 'refused',
      },
    ],
    read: async () => ({ items: rules, next: null }),
  }),
  values: new Table({
    label: 'Limits of individual keys',
    key: each => named(each.key),
    empty: () => 'No key has a limit of its own. Find a key above to set one.',
    columns: [
      {
        title: 'Key',
        fill: (cell, each) =>
          fillLink(cell, named(each.key), address(limit, each.key)),
      },
      {
        title: 'Limit',
        text: each => rated(each.value, rule()),
      },
      {
        title: 'Source',
        text: each => (each.isSet ? 'set at run time' : 'the settings file'),
      },
      {
        title: 'Configured',
        text: each => rated(configured(each.key), rule()),
      },
    ],
    read: async (after, most) => {
      const all = Object.entries({ ...values.file, ...values.set }).map(
        ([of, value]) => ({ key: of, value, isSet: of in values.set }),
      );
      all.sort((a, b) => b.isSet - a.isSet || (a.key < b.key ? -1 : 1));
      return cutPage(all, after, most);
    },
    acts: [
      {
        text: 'Reset to configured value …',
        may: each => each.isSet,
        how: each => back(each.key),
      },
    ],
  }),
  refused: new Table({
    label: 'Keys that were refused most',
    key: each => named(each.key),
    empty: () => 'No call was refused in the last hour.',
    columns: [
      {
        title: 'Key',
        fill: (cell, each) =>
          fillLink(cell, named(each.key), address(limit, each.key)),
      },
      {
        title: 'Refused, last 60 min',
        isNumber: true,
        text: each => number(each.refused),
      },
    ],
    read: async (after, most) => cutPage(recent.refused_keys, after, most),
  }),
  keys: new Table({
    label: 'Keys in use',
    key: each => named(each.key),
    empty: () =>
      'No key of this limit is in use in the part of Redis that was looked at.',
    columns: [
      {
        title: 'Key',
        fill: (cell, each) =>
          fillLink(cell, named(each.key), address(limit, each.key)),
      },
      {
        title: 'Used',
        isNumber: true,
        text: each =>
          isNone(each.limit)
            ? 'no limit'
            : `${number(sizeOf(each) - each.remaining)} of ${number(sizeOf(each))}`,
      },
      {
        title: 'Left',
        isNumber: true,
        text: each => number(each.remaining),
      },
      {
        title: 'All free again in',
        isNumber: true,
        text: each => duration(each.reset_seconds),
      },
    ],
    read: async (after, most) => {
      const found = await request(
        'GET',
        `${path(limit, 'counts')}?${new URLSearchParams({ after, limit: most })}`,
      );
      return {
        items: found.keys,
        next: found.next,
        count: found.next ? null : found.found,
      };
    },
  }),
};

// Returns how many calls are allowed at once: for a bucket its size.
function sizeOf(each) {
  const { algorithm, burst } = rule();
  if (algorithm === 'leaky_bucket') return Math.min(1, each.limit);
  return (
    (algorithm === 'token_bucket' && each.limit ? burst : null) ?? each.limit
  );
}

async function look() {
  ({ limits: rules } = await request('GET', '/v1/limits'));
  if (limit !== null && !rule())
    throw Object.assign(
      new Error(
        `There is no limit called ${limit}. ${rules.length ? `There ${rules.length === 1 ? 'is' : 'are'}: ${rules.map(each => each.name).join(', ')}` : 'There are none'}`,
      ),
      { status: 404 },
    );
  if (limit === null) {
    await list.all.look();
    list.all.root.hidden = !rules.length;
    part('all').querySelector('.none').hidden = rules.length > 0;
    return;
  }
  const of = limit;
  const found = await request('GET', path(limit, 'values'));
  if (of !== limit) return;
  values = found;
  if (Date.now() - recentAt >= RECENT_MS) {
    const counted = await request('GET', path(limit, 'recent'));
    if (of !== limit) return;
    recent = counted;
    recentAt = Date.now();
  }
  if (key === null) await showLimit();
  else await showKey();
}

async function showLimit() {
  put(part('one').querySelector('.rules'), said(rule()));
  fields();
  showCharts();
  await Promise.all([list.values.look(), list.refused.look()]);
}

// Shows the minutes that are over.
function showCharts() {
  const rows = recent.minutes.slice(0, -1).map(minute => {
    const from_ms = Date.parse(minute.at);
    return { ...minute, from_ms, ends_ms: from_ms + MINUTE };
  });
  if (charts?.limit !== limit) {
    charts = new Charts(CHARTS, async () => charts.rowsOfAll, RANGES);
    charts.limit = limit;
    $('[data-list=decisions]').replaceChildren(charts.element);
  }
  charts.rowsOfAll = rows;
  charts.update({ rows: rows.slice(-60), marks: [], event: null });
}

// Builds the form for a key, with a field for each part of the limit's key.
function fields() {
  const { fields: names, key: pattern } = rule(),
    row = $('.fields');
  const known = JSON.stringify([limit, names, pattern]);
  if (row.dataset.known === known) return;
  row.dataset.known = known;
  const inputs = (names.length ? names : pattern ? [] : ['key']).map(name => {
    const label = make('label', '', name),
      input = make('input');
    Object.assign(input, {
      name,
      maxLength: 256,
      autocomplete: 'off',
      spellcheck: false,
      required: names.length > 0,
    });
    input.autocapitalize = 'off';
    input.setAttribute('aria-describedby', 'limits-find');
    label.append(input);
    return label;
  });
  row.replaceChildren(
    ...inputs,
    Object.assign(make('button', '', 'Show what it has used'), {
      type: 'submit',
    }),
  );
  put(
    $('#limits-find'),
    names.length
      ? `A key is ${pattern}.`
      : pattern
        ? `All calls share one key, ${pattern}.`
        : 'The whole key, as the caller or nginx gives it. Empty: what calls without a key share.',
  );
}

// Only the keys that were refused most are known.
function refusedOf(of) {
  const { refused_keys: keys } = recent;
  const found = keys.find(each => each.key === of);
  return found ? number(found.refused) : keys.length ? 'few or none' : '0';
}

function switchOff(isOff) {
  for (const button of part('key').querySelectorAll('button'))
    button.setAttribute('aria-disabled', String(isOff));
}

async function showKey() {
  const of = key,
    found = await request(
      'GET',
      `${path(limit)}?${new URLSearchParams({ key })}`,
    );
  if (of !== key) return;
  state = found;
  const card = part('key'),
    { algorithm } = rule(),
    none = isNone(found.limit);
  const size = none ? null : sizeOf(found),
    used = none ? null : size - found.remaining;
  put(card.querySelector('.rules'), said(rule()));
  const figures = {
    used: number(used),
    size: none ? 'no limit' : number(size),
    left: number(found.remaining),
    reset: duration(found.reset_seconds),
    waits: found.outcome === 'refused' ? 'Ask again in' : 'A call now waits',
    wait: found.wait_seconds == null ? 'never' : fine(found.wait_seconds),
    refused: refusedOf(of),
  };
  if (found.wait_seconds === 0) figures.wait = '0 s';
  for (const [name, text] of Object.entries(figures))
    put(card.querySelector(`[data-f=${name}]`), text);
  const bar = card.querySelector('progress');
  bar.max = Math.max(size ?? 0, used ?? 0, 1);
  bar.value = used ?? 0;
  bar.setAttribute('aria-label', `${figures.used} of ${figures.size} used`);
  const badge = card.querySelector('.badge');
  const [kind, word] = {
    granted: ['running', 'May go now'],
    unlimited: ['running', 'No limit'],
    paced: ['draining', 'Would wait'],
    refused: ['lost', 'Refused'],
  }[found.outcome];
  badge.dataset.kind = kind;
  put(badge, word);

  const isSet = key in values.set,
    field = $('[name=limit]');
  const value = none ? '' : String(found.limit);
  if (field.value === (field.dataset.known ?? '') && field.value !== value)
    field.value = value;
  field.dataset.known = value;
  put(
    $('[data-control=limit] label > span'),
    `Limit of this key: calls${algorithm === 'concurrency' ? ' at a time' : ` in ${lasting(rule().window)}`}`,
  );
  put(
    $('.source'),
    `${isSet ? 'Set at run time' : key in values.file ? 'From the settings file, for this key' : 'From the settings file, as for all other keys'}. Configured: ${rated(configured(key), rule())}.`,
  );
  switchOff(false);
  $('[data-do=back]').setAttribute('aria-disabled', String(!isSet));
  $('[data-do=none]').setAttribute('aria-disabled', String(none));
}

const url = (what, of) => `${path(limit, what)}/${encodeURIComponent(of)}`;

// Asks for confirmation, and sets the limit of the key that is shown.
async function set(value) {
  const now = rated(state.limit, rule()),
    then = rated(value, rule());
  if (now === then)
    return { text: `The limit is ${now} already.`, isNothing: true };
  const size = isNone(state.limit) ? null : sizeOf(state);
  const used =
    size == null
      ? ''
      : ` It has used ${number(size - state.remaining)} of ${number(size)}.`;
  const after = isNone(value)
    ? ' From the next call on nothing is counted.'
    : value === 0
      ? ' From the next call on every call is refused.'
      : ' It holds from the next call on, on all replicas.';
  if (
    !(await ask({
      title: `Change the limit of ${named(key)}?`,
      go: 'Change',
      danger: value === 0,
      text: `${then}, instead of ${now}.${used}${after} Decisions already given stay.`,
    }))
  )
    return null;
  const { warning } = await request('PUT', url('values', key), {
    limit: value,
  });
  $('[name=limit]').dataset.known = $('[name=limit]').value = isNone(value)
    ? ''
    : String(value);
  watch.soon();
  return `The limit is ${then}, now.${warning ? ` But ${warning}.` : ''}`;
}

async function back(of) {
  const now = rated(of in values.set ? values.set[of] : configured(of), rule()),
    then = rated(configured(of), rule());
  if (
    !(await ask({
      title: `Reset the limit of ${named(of)} to its configured value?`,
      go: 'Reset to configured value',
      text: `${then}, instead of ${now}, from the next call on and on all replicas.`,
    }))
  )
    return null;
  await request('DELETE', url('values', of));
  const field = $('[name=limit]');
  field.dataset.known = field.value; // the typed value was for the earlier limit
  watch.soon();
  return `The limit of ${named(of)} is ${then} again.`;
}

async function reset() {
  const size = isNone(state.limit) ? null : sizeOf(state);
  const used =
    size == null
      ? 'What it has used'
      : `The ${number(size - state.remaining)} of ${number(size)} that it has used`;
  const more =
    rule().algorithm === 'concurrency'
      ? ' Permits in use are not ended: more calls run at a time than the limit says, until they are over.'
      : rule().on_exceed === 'pace'
        ? ' Calls that wait for their moment keep it, and new calls go beside them.'
        : '';
  if (
    !(await ask({
      title: `Reset the count of ${named(key)}?`,
      go: 'Reset the count',
      danger: true,
      text: `${used} ${size == null ? 'is' : 'are'} forgotten: the next call finds the whole limit free.${more} This cannot be undone.`,
    }))
  )
    return null;
  const done = await request('DELETE', url('counts', key));
  watch.soon();
  return done.reset
    ? 'The count is reset: the whole limit is free.'
    : { text: 'There was nothing to reset.', isNothing: true };
}

// `name` is a limit's name, or a limit's name and a key with ~ between.
function open(name) {
  const at = name === null ? -1 : name.indexOf('~');
  [limit, key] =
    at < 0 ? [name, null] : [name.slice(0, at), name.slice(at + 1)];
  state = null;
  recentAt = 0;
  recent = { minutes: [], refused_keys: [] };
  switchOff(true); // until the figures have come that the dialogs of changes show
  for (const table of Object.values(list)) table.restart();
  for (const output of section.querySelectorAll('output')) put(output, '');
  const shown = limit === null ? 'all' : key === null ? 'one' : 'key';
  for (const each of ['all', 'one', 'key']) part(each).hidden = each !== shown;
  $('[data-list=keys]').hidden = true;
  $('[name=limit]').value = $('[name=limit]').dataset.known = '';
  put($('[data-part=one] h2'), limit ?? '');
  put(
    $('[data-part=key] h2 code'),
    key === null ? '' : `${limit} ${named(key)}`,
  );
  const crumb = $('[data-part=key] .crumbs a');
  crumb.href = address(limit ?? '');
  put(crumb, `← ${limit}`);
  watch.open();
  const heading = shown === 'all' ? null : part(shown).querySelector('h2');
  if (heading) heading.tabIndex = -1;
  return heading;
}

function act(what, how) {
  const button = $(`[data-do=${what}]`),
    output = button.closest('.control').querySelector('output');
  button.addEventListener('click', () => {
    if (button.getAttribute('aria-disabled') !== 'true' && state)
      tell(output, how);
  });
}

part('all').append(list.all.root);
$('[data-list=values]').append(list.values.root);
$('[data-list=keys]').append(list.keys.root);
$('[data-list=refused]').append(list.refused.root);
$('.search').addEventListener('submit', event => {
  event.preventDefault();
  const query = new URLSearchParams(new FormData(event.target));
  tell(event.target.querySelector('output'), async () => {
    const found = await request('GET', `${path(limit)}?${query}`);
    location.hash = address(limit, found.key);
    return null;
  });
});
$('[data-do=search]').addEventListener('click', () => {
  $('[data-list=keys]').hidden = false;
  list.keys.turn([]);
});
act('none', () => set(UNLIMITED));
act('back', () => back(key));
act('reset', reset);
$('[data-control=limit]').addEventListener('submit', event => {
  event.preventDefault();
  if (state)
    tell(event.target.querySelector('output'), () =>
      set(Number(event.target.elements.limit.value)),
    );
});
register({
  path: 'limits',
  title: 'Limits',
  root: section,
  open,
  close: () => watch.close(),
});
