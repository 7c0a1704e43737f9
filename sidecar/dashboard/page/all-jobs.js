// The view of jobs, #/jobs or #/jobs/TARGET: a search, and bulk retry and cancel.

import { ask, request, tell } from './acts.js';
import { copyable } from './copy.js';
import { showJob } from './details.js';
import { make, number, put } from './draw.js';
import { ENDED, KINDS, kindOf, place, time } from './job.js';
import { Reasons } from './reasons.js';
import { Table } from './table.js';
import { TargetCharts } from './target-charts.js';
import { register } from './views.js';
import { Watch } from './watch.js';

// The number of pages without a match that a search skips by itself.
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
        ),
    },
    { title: 'Target', text: each => each.target },
    { title: 'State', fill: fillState },
    {
      title: 'HTTP',
      isNumber: true,
      text: each => (each.status == null ? '–' : String(each.status)),
    },
    {
      title: 'Submitted by',
      text: each => (each.class ? `${each.owner}, ${each.class}` : each.owner),
    },
    {
      title: 'Tries',
      isNumber: true,
      text: each => number(each.attempts),
    },
    {
      title: 'Created',
      text: each => time(each.created_at),
    },
    { title: 'Ended', text: each => time(each.ended_at) },
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

function two(cell, id, call) {
  if (!cell.firstElementChild) cell.append(copyable(id), make('span', 'call'));
  put(cell.lastElementChild, call);
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

// Returns the properties of a job's target that the dialog of the job needs.
function targetOf({ target }) {
  const { settings = {} } = targets.find(({ name }) => name === target) ?? {};
  return {
    state: { settings },
    refresh: () => watch.soon(),
    jobs: { state: tabs.querySelector('[aria-pressed=true]') },
  };
}

// The tabs of states, each with the number of its jobs. The number is not known if the search has
// further criteria.
const tabs = root.querySelector('.tabs');
for (const state of ['', ...Object.keys(KINDS)]) {
  const tab = make('button', '', state || 'all');
  tab.type = 'button';
  tab.value = state;
  tab.append(' ', make('span', 'count'));
  tab.addEventListener('click', () => {
    ofState.value = state;
    search();
  });
  tabs.append(tab);
}

function showTabs() {
  const { state = '', target, ...others } = filter;
  const isCounted = targets.length > 0 && !Object.keys(others).length;
  const counts = targets
    .filter(({ name }) => !target || name === target)
    .map(({ jobs }) => jobs);
  const sum = name => counts.reduce((all, each) => all + (each[name] ?? 0), 0);
  for (const tab of tabs.children) {
    const count = tab.value
      ? sum(tab.value)
      : Object.keys(KINDS).reduce((all, name) => all + sum(name), 0);
    tab.setAttribute('aria-pressed', String(tab.value === state));
    put(tab.lastElementChild, isCounted ? number(count) : '');
  }
}

const reasons = new Reasons('Why they failed', {
  heading: 'h2',
  show: status => {
    form.elements.status.value = status;
    ofState.value = 'failed';
    search();
  },
});
root.querySelector('[data-list=jobs]').before(reasons.element);
const pace = root.querySelector('.pace');
let charts = null;

// Shows the charts of the chosen target while they are open.
function showPace() {
  const { target } = filter;
  pace.hidden = !targets.some(({ name }) => name === target);
  if (pace.hidden || !pace.open || charts?.target === target) return;
  charts = new TargetCharts(`/v1/targets/${encodeURIComponent(target)}`);
  charts.target = target;
  charts.collect().catch(() => {
    charts = null; // the next update tries again
  });
  pace.replaceChildren(pace.firstElementChild, charts.element);
}
pace.addEventListener('toggle', showPace);

let turn = 0;
const watch = new Watch(root, async () => {
  if (turn++ % 5 === 0) learnTargets();
  await Promise.all([table.look(), reasons.collect(filter)]);
});

const WORDS = {
  retry: {
    do: 'Retry',
    done: 'wait again',
    stay: 'Leave them',
    text: 'They wait again, at the end of their queues, and their targets are called once more. Answers that are kept are lost.',
  },
  cancel: {
    do: 'Cancel',
    done: 'are cancelled',
    stay: 'Keep them',
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

// Asks for confirmation with the number of jobs, changes the jobs, and returns the result.
async function change(what, body, count) {
  const words = WORDS[what];
  if (!count) return { text: `No job is there to ${what}.`, isNothing: true };
  if (
    !(await ask({
      title: `${words.do} ${jobs(count)}?`,
      text: words.text,
      go: `${words.do} ${jobs(count)}`,
      stay: words.stay,
      danger: what === 'cancel',
    }))
  )
    return null;
  const { changed, skipped } = await post(what, body);
  turn = 0; // the numbers of the tabs have changed
  const why = [...new Set(skipped.map(({ reason }) => reason))]
    .slice(0, 3)
    .join(' ');
  return {
    text: `${jobs(changed)} ${words.done}.${skipped.length ? ` ${jobs(skipped.length)} skipped: ${why}` : ''}`,
    isNothing: !changed,
  };
}

for (const what of ['retry', 'cancel']) {
  const button = root.querySelector(`[data-do=${what}]`);
  button.addEventListener('click', () => {
    if (button.getAttribute('aria-disabled') === 'true') return;
    tell(output, async () => {
      // Jobs that are submitted after the dialog opened are not changed.
      const body = { to: new Date().toISOString(), ...filter };
      const { changed } = await post(what, { ...body, dry_run: true });
      const said = await change(what, body, changed);
      watch.soon();
      return said;
    });
  });
}

// Enables the actions that the jobs in the filter's state allow. An empty filter stands for all
// jobs.
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
  showTabs();
  showPace();
  table.restart();
  watch.soon();
}

form.addEventListener('submit', event => {
  event.preventDefault();
  search();
});
form.addEventListener('reset', () => {
  ofState.value = ''; // it is hidden, so that a reset leaves it
  setTimeout(search);
});
ofTarget.addEventListener('change', search);

// Sets the options of the field. The selected option stays, even if no target has that name.
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
async function learnTargets() {
  try {
    ({ targets } = await request('GET', '/v1/targets'));
  } catch {
    /* the list shows that the replica does not answer */
  }
  options(
    ofTarget,
    targets.map(({ name }) => name),
  );
  showTabs();
  showPace();
}

// Opens the list of the target at once, without waiting for the names of other targets.
function open(target, id) {
  form.reset();
  form.elements.id.value = id ?? '';
  options(ofTarget, target ? [target] : []);
  ofTarget.value = target ?? '';
  turn = 0; // the first look learns the targets
  search();
  watch.open();
}

// Registers the view if jobs are configured.
export function watchJobs() {
  register({
    path: 'jobs',
    title: 'Jobs',
    root,
    open: (target, id) => {
      open(target, id);
    },
    close: () => watch.close(),
  });
}
