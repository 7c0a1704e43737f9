// The view of leases: #/leases, the resources of a template #/leases/seat, and the holders and
// waiting clients of a resource #/leases/seat~17.

import { ask, request } from './acts.js';
import { duration, moment, number, put } from './draw.js';
import { cutPage, fillBadge, fillLink, fillTwo, Table } from './table.js';
import { register } from './views.js';
import { Watch } from './watch.js';

const HOLDERS = 3; // shown of each resource in the list
const TRIES = 10; // pages that one search reads

const section = document.getElementById('leases');
const $ = selector => section.querySelector(selector);
const part = name => $(`[data-part=${name}]`);
const watch = new Watch(section, look);

let templates = null,
  template = null,
  resource = null,
  wanted = '',
  state = null;

const path = (...names) =>
  ['/v1/leases', ...names.map(encodeURIComponent)].join('/');
const time = iso => (iso ? moment(Date.parse(iso)) : '–');
const ago = iso =>
  iso ? duration(Math.max(0, (Date.now() - Date.parse(iso)) / 1000)) : '–';
const left = iso =>
  duration(Math.max(0, (Date.parse(iso) - Date.now()) / 1000));
const settings = () => templates.find(each => each.name === template);
const from = ({ owner, number: short, holder }) =>
  owner
    ? `by the token ${owner}`
    : short
      ? `a browser, ${holder}`
      : 'a browser';
// A visitor is called by the reference on the waiting page.
const named = ({ holder, number: short }) => short ?? holder;
const count = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;

// Returns the badge of a resource: the kind and the text.
function stateOf({ held, waiting, holders }) {
  if (!held)
    return waiting ? ['draining', 'Between holders'] : ['over', 'Free'];
  if (holders.length && !holders.some(each => each.fence))
    return ['draining', 'Called'];
  return held >= settings().capacity
    ? ['running', settings().capacity === 1 ? 'Held' : 'Full']
    : ['done', 'Has room'];
}

function rules({
  term,
  capacity,
  renewable,
  max_term: most,
  max_waiting: queue,
}) {
  const renewal = renewable
    ? `renewable${most ? `, ${duration(most)} in all at most` : ''}`
    : 'not renewable';
  const waits =
    queue == null
      ? 'no limit on the queue'
      : queue
        ? `${number(queue)} wait at most`
        : 'nobody waits';
  return `${count(capacity, 'holder', 'holders')} at a time, for ${duration(term)}, ${renewal}; ${waits}. These are settings: change them in the settings file.`;
}

// A renewal sets the end to one term from now, up to the longest time of a lease with renewals.
function renewed({ fence, granted_at: granted, expires_at: expires }) {
  const { renewable, term, max_term: most } = settings();
  if (!renewable || !fence) return '–';
  const [start, end] = [Date.parse(granted), Date.parse(expires)];
  if (end - start < term * 1000 + 50) return 'not yet';
  return most && end - start >= most * 1000 - 50
    ? 'to its longest'
    : moment(end - term * 1000);
}

const list = {
  templates: new Table({
    label: 'Templates',
    key: each => each.name,
    empty: () => '',
    columns: [
      {
        title: 'Template',
        fill: (cell, each) =>
          fillLink(
            cell,
            each.name,
            `#/leases/${encodeURIComponent(each.name)}`,
          ),
      },
      {
        title: 'Resources in use',
        isNumber: true,
        text: each => number(each.in_use),
      },
      {
        title: 'Holders of one',
        isNumber: true,
        text: each => number(each.capacity),
      },
      {
        title: 'Term',
        isNumber: true,
        text: each => duration(each.term),
      },
      {
        title: 'Renewable',
        text: each => (each.renewable ? 'yes' : 'no'),
      },
    ],
    read: async () => ({ items: templates, next: null }),
  }),
  resources: new Table({
    label: 'Resources',
    key: each => each.name,
    empty: () =>
      wanted
        ? `Nothing is called so, or held or waited for by ${wanted}.`
        : `Nobody holds or waits for a resource of ${template}. A resource exists as soon as a client names it: POST ${path(template, '17')}.`,
    columns: [
      {
        title: 'Resource',
        fill: (cell, each) =>
          fillLink(
            cell,
            each.name,
            `#/leases/${encodeURIComponent(`${template}~${each.name}`)}`,
          ),
      },
      { title: 'State', fill: (cell, each) => fillBadge(cell, stateOf(each)) },
      {
        title: 'Held',
        isNumber: true,
        text: each => `${number(each.held)} of ${number(settings().capacity)}`,
      },
      { title: 'By', text: each => held(each) },
      {
        title: 'Waiting',
        isNumber: true,
        text: each => number(each.waiting),
      },
      {
        title: 'Wait',
        isNumber: true,
        text: each => duration(each.wait_seconds),
      },
      {
        title: 'Oldest lease',
        isNumber: true,
        text: each => ago(each.oldest_at),
      },
    ],
    read: readResources,
    several: [
      {
        text: 'Release all their holders …',
        isDanger: true,
        how: releaseResources,
      },
    ],
  }),
  holders: new Table({
    label: 'Who holds it',
    key: nameOf,
    empty: () => 'Nobody.',
    columns: [
      {
        title: 'Holder',
        fill: (cell, each) => fillTwo(cell, named(each), from(each)),
      },
      {
        title: 'Fencing number',
        text: each =>
          each.fence ? String(each.fence) : 'called, has not come yet',
      },
      {
        title: 'Since',
        text: each =>
          each.granted_at
            ? `${time(each.granted_at)}, ${ago(each.granted_at)}`
            : '–',
      },
      {
        title: 'Until',
        text: each => `${time(each.expires_at)}, in ${left(each.expires_at)}`,
      },
      { title: 'Renewed', text: each => renewed(each) },
    ],
    // The state has all waiting clients, and a page is a part of them.
    read: async (after, limit) => ({
      ...cutPage(state.holders, after, limit),
      count: state.held,
    }),
    acts: [
      {
        text: 'Release …',
        isDanger: true,
        how: each => release([each], 'holders'),
      },
    ],
    several: [
      {
        text: 'Release …',
        isDanger: true,
        how: each => release(each, 'holders'),
      },
    ],
  }),
  queue: new Table({
    label: 'Who waits',
    key: nameOf,
    empty: () => 'Nobody.',
    columns: [
      {
        title: 'Holder',
        fill: (cell, each) => fillTwo(cell, named(each), from(each)),
      },
      {
        title: 'Place',
        isNumber: true,
        text: each => number(each.position),
      },
      {
        title: 'Since',
        text: each => `${time(each.joined_at)}, ${ago(each.joined_at)}`,
      },
      {
        title: 'Heartbeat due',
        text: each =>
          Date.parse(each.heartbeat_due_at) > Date.now()
            ? `in ${left(each.heartbeat_due_at)}`
            : `${ago(each.heartbeat_due_at)} ago`,
      },
    ],
    read: readQueue,
    acts: [
      {
        text: 'Remove …',
        isDanger: true,
        how: each => release([each], 'queue'),
      },
    ],
    several: [
      { text: 'Remove …', isDanger: true, how: each => release(each, 'queue') },
    ],
  }),
};

// Holders with different tokens may have the same name.
function nameOf(each) {
  return each.owner ? `${each.holder} (${each.owner})` : named(each);
}

function held({ held: all, holders }) {
  const names = holders.slice(0, HOLDERS).map(named).join(', ');
  return all > HOLDERS
    ? `${names} and ${number(all - HOLDERS)} more`
    : names || 'nobody';
}

async function readResources(after, limit) {
  let page,
    from = after;
  // A page of a search may be empty although more pages follow.
  for (let i = 0; i < TRIES; i++) {
    const query = new URLSearchParams({ after: from, limit, holders: HOLDERS });
    if (wanted) query.set('find', wanted);
    page = await request('GET', `${path(template)}?${query}`);
    if (page.resources.length || !page.next) break;
    from = page.next;
  }
  return {
    items: page.resources,
    next: page.next,
    count: wanted ? null : page.count,
  };
}

async function readQueue(after, limit) {
  const of = resource;
  const found = await request(
    'GET',
    `${path(template, resource)}/queue?${new URLSearchParams({ after, limit })}`,
  );
  if (of === resource) state = found; // unless another resource was opened meanwhile
  return { items: found.queue, next: found.next, count: found.waiting };
}

// The request has the fencing number, so that a lease that began after the dialog opened is not
// ended.
function end(at, { holder, owner, fence }) {
  const query = new URLSearchParams({ holder, owner: owner ?? '' });
  if (fence) query.set('fence', fence);
  return request('DELETE', `${path(template, at)}?${query}`);
}

// Ends the leases one after the other. A lease that has ended already is no failure.
async function endAll(ends) {
  let done = 0;
  for (const [i, [at, each]] of ends.entries()) {
    try {
      if ((await end(at, each)).released) done++;
    } catch (error) {
      if (error.status !== 409)
        throw new Error(
          `${error.message} ${number(i)} of ${number(ends.length)} were asked for before.`,
        );
    }
  }
  const over = ends.length - done;
  return `${count(done, 'is', 'are')} released.${over ? ` ${count(over, 'was', 'were')} over already.` : ''}`;
}

const MEANING =
  'No holder is notified: each works on without a lease until it renews or asks, or until its fencing number is refused.';

async function release(items, kind) {
  const isOne = items.length === 1;
  const who = isOne
    ? named(items[0])
    : kind === 'queue'
      ? `${number(items.length)} places`
      : `${number(items.length)} leases`;
  const waiting = state.waiting;
  const next = waiting
    ? `${count(waiting, 'client waits', 'clients wait')}; the next has it at once.`
    : 'Nobody waits for it.';
  const text =
    kind === 'queue'
      ? `Of the ${number(waiting)} who wait for ${resource}, ${isOne ? 'this one loses its place' : `${number(items.length)} lose their places`}. Who asks again is at the end of the queue.`
      : `${next} ${MEANING}`;
  if (
    !(await ask({
      title:
        kind === 'queue' ? `Remove ${who} from the queue?` : `Release ${who}?`,
      go: kind === 'queue' ? 'Remove' : 'Release',
      danger: true,
      text,
    }))
  )
    return null;
  const said = await endAll(items.map(each => [resource, each]));
  watch.soon();
  return said;
}

async function releaseResources(items) {
  const waiting = items.reduce((sum, each) => sum + each.waiting, 0);
  const all = items.reduce((sum, each) => sum + each.held, 0);
  if (!all) return 'Nobody holds them.';
  if (
    !(await ask({
      title: `Release ${count(all, 'lease', 'leases')} of ${count(items.length, 'resource', 'resources')}?`,
      go: 'Release',
      danger: true,
      text: `${waiting ? `${count(waiting, 'client waits', 'clients wait')} for them; the next of each have it at once.` : 'Nobody waits for them.'} ${MEANING}`,
    }))
  )
    return null;
  const ends = [];
  for (const { name, held: most, holders } of items) {
    const known =
      holders.length === most
        ? holders
        : (await request('GET', `${path(template, name)}/queue?limit=1`))
            .holders;
    ends.push(...known.map(each => [name, each]));
  }
  return endAll(ends);
}

async function look() {
  ({ leases: templates } = await request('GET', '/v1/leases'));
  if (template && !settings())
    throw Object.assign(
      new Error(
        `There is no template of leases called ${template}. ${templates.length ? `There ${templates.length === 1 ? 'is' : 'are'}: ${templates.map(each => each.name).join(', ')}` : 'There are none'}`,
      ),
      { status: 404 },
    );
  if (!template) return showTemplates();
  return resource === null ? showResources() : showResource();
}

async function showTemplates() {
  await list.templates.look();
  list.templates.root.hidden = !templates.length;
  part('templates').querySelector('.none').hidden = templates.length > 0;
  part('templates').querySelector('.hint').hidden = !templates.length;
}

async function showResources() {
  put(part('resources').querySelector('.rules'), rules(settings()));
  part('resources').querySelector('.crumbs').hidden = false;
  await list.resources.look();
}

async function showResource() {
  const card = part('resource');
  put(card.querySelector('.rules'), rules(settings()));
  await list.queue.look();
  await list.holders.look();
  const figures = {
    held: number(state.held),
    capacity: number(settings().capacity),
    waiting: number(state.waiting),
    wait: duration(state.wait_seconds),
  };
  for (const [name, text] of Object.entries(figures))
    put(card.querySelector(`[data-f=${name}]`), text);
  const [kind, word] = stateOf(state),
    badge = card.querySelector('.badge');
  badge.dataset.kind = kind;
  put(badge, word);
}

// `name` is a template's name, or a template's and a resource's name with ~ between.
function open(name) {
  const at = name === null ? -1 : name.indexOf('~');
  [template, resource] =
    at < 0 ? [name, null] : [name.slice(0, at), name.slice(at + 1)];
  wanted = $('[name=find]').value = '';
  state = { holders: [], queue: [], held: 0, waiting: 0 };
  for (const table of Object.values(list)) table.restart();
  const shown = !template
    ? 'templates'
    : resource === null
      ? 'resources'
      : 'resource';
  for (const each of ['templates', 'resources', 'resource'])
    part(each).hidden = each !== shown;
  put($('[data-part=resources] h2'), template ?? '');
  put($('[data-part=resource] h2 code'), `${template} ${resource}`);
  const back = $('[data-part=resource] .crumbs a');
  back.href = `#/leases/${encodeURIComponent(template ?? '')}`;
  put(back, `← All resources of ${template}`);
  watch.open();
  const heading =
    shown === 'templates' ? null : part(shown).querySelector('h2');
  if (heading) heading.tabIndex = -1;
  return heading;
}

part('templates').append(list.templates.root);
part('resources').append(list.resources.root);
$('[data-list=holders]').append(list.holders.root);
$('[data-list=queue]').append(list.queue.root);
$('.search').addEventListener('submit', event => {
  event.preventDefault();
  wanted = $('[name=find]').value.trim();
  list.resources.restart();
  watch.soon();
});
register({
  path: 'leases',
  title: 'Leases',
  root: section,
  open,
  close: () => watch.close(),
});
