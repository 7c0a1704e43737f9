// The search at the top: rooms, targets, jobs, leases and visitors, all from one endpoint.

import { request } from './acts.js';
import { make, number, put } from './draw.js';

const TYPED_MS = 250,
  LEAST = 2,
  PAGES = 20; // pages without a hit that are read by themselves

const form = document.getElementById('search');
const field = form.querySelector('input');
const panel = document.getElementById('found');
const list = panel.querySelector('ul'),
  status = panel.querySelector('p'),
  further = panel.querySelector('button');
// What a kind is called, and the view that shows it.
const KINDS = {
  room: ['Room', 'rooms'],
  template: ['Leases', 'leases'],
  limit: ['Limit', 'limits'],
  target: ['Target', 'targets'],
  webhook: ['Webhook', 'webhooks'],
  job: ['Job', 'jobs'],
  resource: ['Lease', 'leases'],
  visitor: ['Visitor', 'rooms'],
};
const MISSING = {
  redis: 'Redis does not answer: visitors and leases were not searched.',
  database:
    'The database does not answer: jobs and the history were not searched.',
};
let asked = null, // the search whose results are shown
  timer;

function address({ kind, name, of, id }) {
  const parts = {
    job: [of, name],
    resource: [`${of}~${name}`],
    visitor: [of, id],
  };
  return [
    '#',
    KINDS[kind][1],
    ...(parts[kind] ?? [name]).map(encodeURIComponent),
  ].join('/');
}

function item(hit) {
  const { kind, name, of, state } = hit;
  const row = make('li'),
    link = make('a');
  link.href = address(hit);
  link.append(
    make('span', 'hint', KINDS[kind][0]),
    ' ',
    make('strong', '', name),
  );
  const where = [
    of && `in ${of}`,
    state === 'recorded' ? 'in the history' : state,
  ];
  link.append(' ', make('span', 'hint', where.filter(Boolean).join(', ')));
  row.append(link);
  return row;
}

const links = () => [...list.querySelectorAll('a')];

function show({ hits, isDone, isOver, missing, error }) {
  const shown = new Set(links().map(link => link.getAttribute('href')));
  list.append(...hits.filter(hit => !shown.has(address(hit))).map(item));
  const count = links().length;
  const none = isDone
    ? 'Nothing found.'
    : isOver
      ? 'Nothing found so far.'
      : 'Searching …';
  const said = count ? `${number(count)} found.` : none;
  put(status, error ?? [said, ...missing].join(' '));
  further.hidden = isDone || !(isOver || count);
  panel.hidden = false;
}

// Reads pages until something is found. `query.next` is where the next search goes on.
async function read(query) {
  let hits = [],
    missing = [];
  try {
    for (
      let page = 0;
      page < PAGES && query.next !== null && !hits.length;
      page++
    ) {
      const parameters = new URLSearchParams({
        q: query.text,
        after: query.next,
      });
      const found = await request('GET', `/admin/search?${parameters}`);
      if (query !== asked) return;
      hits = found.hits;
      query.next = found.next;
      missing = found.unavailable.map(name => MISSING[name]);
    }
    show({ hits, missing, isDone: query.next === null, isOver: true });
    if (query.goes) go();
  } catch (error) {
    if (query === asked)
      show({ hits, missing, isDone: true, error: error.message });
  }
}

function start() {
  clearTimeout(timer);
  const text = field.value.trim();
  if (text === asked?.text) return;
  list.replaceChildren();
  asked = text.length < LEAST ? null : { text, next: '', goes: false };
  panel.hidden = !asked;
  if (!asked) return;
  show({ hits: [], missing: [] });
  read(asked);
}

// Opens the only hit, or goes to the first one.
function go() {
  const [first, ...others] = links();
  if (!first) return;
  if (others.length) first.focus();
  else first.click();
}

function close() {
  panel.hidden = true;
  asked = null;
}

field.addEventListener('input', () => {
  clearTimeout(timer);
  timer = setTimeout(start, TYPED_MS);
});
field.addEventListener('focus', () => {
  if (!asked) start();
});
form.addEventListener('submit', event => {
  event.preventDefault();
  start();
  if (links().length) go();
  else if (asked) asked.goes = true;
});
further.addEventListener('click', () => {
  field.focus();
  further.hidden = true;
  read(asked);
});
list.addEventListener('click', event => {
  if (!event.target.closest('a')) return;
  field.value = '';
  close();
});
form.addEventListener('focusout', ({ relatedTarget }) => {
  if (!form.contains(relatedTarget)) close();
});
form.addEventListener('keydown', event => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === 'Escape') {
    if (panel.hidden) field.value = '';
    field.focus();
    close();
    event.preventDefault();
  } else if (step && !panel.hidden) {
    const all = [field, ...links()];
    const to = all[all.indexOf(document.activeElement) + step];
    to?.focus();
    event.preventDefault();
  }
});
document.addEventListener('keydown', event => {
  const isTyped = event.target.closest('input, textarea, select, dialog');
  if (
    event.key !== '/' ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    isTyped
  )
    return;
  event.preventDefault();
  field.focus();
  field.select();
});
