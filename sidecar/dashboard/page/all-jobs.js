// The view of jobs, #/jobs or #/jobs/TARGET: searched, and retried or cancelled in bulk.

import { ask, request, tell } from './acts.js';
import { showJob } from './details.js';
import { make, number, put } from './draw.js';
import { ENDED, KINDS, kindOf, place, time } from './job.js';
import { Table } from './table.js';
import { register } from './views.js';
import { Watch } from './watch.js';

// Pages without a match that are turned by themselves.
const PAGES = 10;

const root = document.getElementById('jobs');
const form = root.querySelector('form');
const { state: ofState, target: ofTarget } = form.elements;
const output = root.querySelector('.card > output');
let targets = [],
  filter = {},
  isMore = false;

const table = new Table({
  label: 'Jobs, newest first',
  key: each => each.id,
  empty: () =>
    isMore
      ? 'No match so far: the next page looks further.'
      : Object.keys(filter).length
        ? 'No job matches.'
        : 'There are no jobs.',
  columns: [
    {
      title: 'Job',
      fill: (cell, each) =>
        two(
          cell,
          each.id,
          each.kind === 'online' ? 'online' : `${each.method} ${each.path}`,
          'id',
        ),
    },
    { title: 'Target', fill: (cell, each) => put(cell, each.target) },
    { title: 'State', fill: fillState },
    {
      title: 'HTTP',
      isNumber: true,
      fill: (cell, each) =>
        put(cell, each.status == null ? '–' : String(each.status)),
    },
    {
      title: 'Submitted by',
      fill: (cell, each) =>
        put(cell, each.class ? `${each.owner}, ${each.class}` : each.owner),
    },
    {
      title: 'Tries',
      isNumber: true,
      fill: (cell, each) => put(cell, number(each.attempts)),
    },
    {
      title: 'Created',
      fill: (cell, each) => put(cell, time(each.created_at)),
    },
    { title: 'Ended', fill: (cell, each) => put(cell, time(each.ended_at)) },
  ],
  read,
  acts: [
    {
      text: 'Details',
      needs: '',
      how: each => {
        showJob(each, targetOf(each));
        return null;
      },
    },
  ],
  several: [
    {
      text: 'Retry …',
      how: each =>
        change('retry', { ids: each.map(({ id }) => id) }, each.length),
    },
    {
      text: 'Cancel …',
      isDanger: true,
      how: each =>
        change('cancel', { ids: each.map(({ id }) => id) }, each.length),
    },
  ],
});
root.querySelector('[data-list=jobs]').append(table.root);

function two(cell, first, second, className) {
  if (!cell.firstElementChild)
    cell.append(make('code', className), make('span', 'call'));
  put(cell.firstElementChild, first);
  put(cell.lastElementChild, second);
}

function fillState(cell, job) {
  if (!cell.firstElementChild)
    cell.append(
      make('span', 'badge'),
      ' ',
      make('span', 'hint'),
      ' ',
      make('span', 'hint error'),
    );
  const [badge, where, error] = cell.children;
  put(badge, job.state);
  badge.dataset.kind = kindOf(job);
  put(where, place(job));
  put(error, job.error ?? '');
}

async function read(after, limit) {
  let page = { jobs: [], next: after };
  for (
    let turn = 0;
    turn < PAGES && !page.jobs.length && page.next !== null;
    turn++
  ) {
    page = await request(
      'GET',
      `/v1/jobs?${new URLSearchParams({ ...filter, after: page.next, limit })}`,
    );
  }
  isMore = page.next !== null;
  return { items: page.jobs, next: page.next };
}

// What the dialog of a job needs to know of its target.
function targetOf({ target }) {
  const { settings = {} } = targets.find(({ name }) => name === target) ?? {};
  return {
    state: { settings },
    refresh: () => watch.soon(),
    jobs: { state: ofState },
  };
}

const watch = new Watch(root, () => table.look());

const WORDS = {
  retry: {
    do: 'Retry',
    done: 'wait again',
    text: 'They wait again, at the end of their queues, and their targets are called once more. Answers that are kept are lost.',
  },
  cancel: {
    do: 'Cancel',
    done: 'are cancelled',
    text: 'They lose their places and are not called. Calls under way are cut off where the target allows it.',
  },
};
const jobs = count => `${number(count)} ${count === 1 ? 'job' : 'jobs'}`;

async function post(what, body) {
  let changed = 0,
    after = '';
  const skipped = [];
  do {
    const page = await request('POST', `/v1/jobs/bulk/${what}`, {
      ...body,
      after,
    });
    changed += page.changed;
    skipped.push(...page.skipped);
    after = page.next;
    if (!body.dry_run && after !== null)
      put(output, `${jobs(changed)} so far …`);
  } while (after !== null);
  return { changed, skipped };
}

// Asks with the number, changes them, and says what came of it.
async function change(what, body, count) {
  const words = WORDS[what];
  if (!count) return `No job is there to ${what}.`;
  if (
    !(await ask({
      title: `${words.do} ${jobs(count)}?`,
      text: words.text,
      go: `${words.do} ${jobs(count)}`,
      danger: what === 'cancel',
    }))
  )
    return null;
  const { changed, skipped } = await post(what, body);
  const why = [...new Set(skipped.map(({ reason }) => reason))]
    .slice(0, 3)
    .join(' ');
  return `${jobs(changed)} ${words.done}.${skipped.length ? ` ${jobs(skipped.length)} skipped: ${why}` : ''}`;
}

for (const what of ['retry', 'cancel']) {
  const button = root.querySelector(`[data-do=${what}]`);
  button.addEventListener('click', () => {
    if (button.getAttribute('aria-disabled') === 'true') return;
    tell(output, async () => {
      // Jobs that come after the question are not meant.
      const body = { to: new Date().toISOString(), ...filter };
      const { changed } = await post(what, { ...body, dry_run: true });
      const said = await change(what, body, changed);
      watch.soon();
      return said;
    });
  });
}

// A filter that names a state allows what such jobs allow; one that says nothing is all jobs.
function follow() {
  const isEnded = ENDED.includes(filter.state),
    isAny = !Object.keys(filter).length;
  for (const [what, isOff] of [
    ['retry', isAny || (filter.state && !isEnded)],
    ['cancel', isAny || isEnded],
  ]) {
    root
      .querySelector(`[data-do=${what}]`)
      .setAttribute('aria-disabled', String(Boolean(isOff)));
  }
  root.querySelector('.every .hint').hidden = !isAny;
}

function search() {
  filter = Object.fromEntries(
    [...new FormData(form)]
      .map(([name, text]) => [name, text.trim()])
      .filter(([, text]) => text),
  );
  put(output, '');
  follow();
  table.restart();
  watch.soon();
}

form.addEventListener('submit', event => {
  event.preventDefault();
  search();
});
form.addEventListener('reset', () => setTimeout(search));
for (const select of [ofState, ofTarget])
  select.addEventListener('change', search);

// Those to choose from. What is chosen stays, also where it is not there, or not known to be.
function options(select, names) {
  const { value } = select,
    all = new Set(['', ...(value ? [value] : []), ...names]);
  if ([...select.options].map(each => each.value).join() === [...all].join())
    return;
  select.replaceChildren(
    ...[...all].map(name =>
      Object.assign(make('option', '', name || 'all'), { value: name }),
    ),
  );
  select.value = value;
}
options(ofState, Object.keys(KINDS));

async function learnTargets() {
  try {
    ({ targets } = await request('GET', '/v1/targets'));
  } catch {
    /* the list says that nobody answers */
  }
  options(
    ofTarget,
    targets.map(({ name }) => name),
  );
}

// The list is of that target from the start: it does not wait for the names of the others.
function open(target) {
  form.reset();
  options(ofTarget, target ? [target] : []);
  ofTarget.value = target ?? '';
  learnTargets();
  search();
  watch.open();
}

// Where there are jobs.
export function watchJobs() {
  register({
    path: 'jobs',
    title: 'Jobs',
    root,
    open: target => {
      open(target);
    },
    close: () => watch.close(),
  });
}
