// The view of webhooks: #/webhooks, and the deliveries of one, #/webhooks/team.

import { ask, request, tell } from './acts.js';
import { fine, make, moment, number, put } from './draw.js';
import { webhookState } from './modes.js';
import { fillBadge, fillLink, fillTwo, Table } from './table.js';
import { register } from './views.js';
import { Watch } from './watch.js';

const section = document.getElementById('webhooks');
const $ = selector => section.querySelector(selector);
const part = name => $(`[data-part=${name}]`);
const watch = new Watch(section, look);
const STATES = {
  waiting: ['draining', 'Waiting'],
  delivered: ['running', 'Delivered'],
  failed: ['lost', 'Failed'],
};

let hooks = [],
  name = null,
  found = null;

const path = (...rest) =>
  ['/admin/webhooks', ...[name, ...rest].map(encodeURIComponent)].join('/');
const time = iso => (iso ? moment(Date.parse(iso)) : '–');
const many = (n, one, more) => `${number(n)} ${n === 1 ? one : more}`;

// Shows the last response. The receiver's body is shown as text only.
function fillAnswer(
  cell,
  {
    event,
    attempts,
    status,
    reason,
    took_seconds: took,
    last_attempt_at: at,
    body,
    resent_by: by,
  },
) {
  if (!cell.firstChild)
    cell.append(
      make('span', 'who'),
      make('span', 'hint'),
      make('code', 'said'),
    );
  const [first, second, text] = cell.children;
  put(first, reason || (attempts ? `HTTP ${status}` : 'none yet'));
  put(
    second,
    [
      attempts ? `${time(at)}, took ${fine(took)}` : '',
      by
        ? `sent ${event === 'test' && attempts < 2 ? '' : 'again '}by ${by}`
        : '',
    ]
      .filter(Boolean)
      .join('; '),
  );
  put(text, body);
}

const list = {
  hooks: new Table({
    label: 'Webhooks',
    key: each => each.name,
    empty: () => '',
    columns: [
      {
        title: 'Webhook',
        fill: (cell, each) =>
          fillLink(
            cell,
            each.name,
            `#/webhooks/${encodeURIComponent(each.name)}`,
          ),
      },
      {
        title: 'State',
        fill: (cell, each) => fillBadge(cell, webhookState(each).reverse()),
      },
      { title: 'Host', text: each => each.host },
      {
        title: 'Waiting',
        isNumber: true,
        text: each => number(each.waiting),
      },
      {
        title: 'Failed',
        isNumber: true,
        text: each => number(each.failed),
      },
      {
        title: 'Delivered',
        isNumber: true,
        text: each => number(each.delivered),
      },
      {
        title: 'Latest',
        fill: (cell, { last }) =>
          fillTwo(cell, last ? last.event : '–', last ? time(last.at) : ''),
      },
    ],
    read: async () => ({ items: hooks, next: null }),
  }),
  deliveries: new Table({
    label: 'Deliveries',
    key: each => each.id,
    empty: () =>
      $('select').value === 'all'
        ? 'Nothing was sent yet. Send a test.'
        : 'None.',
    columns: [
      {
        title: 'Event',
        fill: (cell, { event, room, target, calls }) =>
          fillTwo(
            cell,
            event,
            `${target ?? room}${calls == null ? '' : `, ${many(calls, 'call', 'calls')}`}`,
          ),
      },
      { title: 'At', text: each => time(each.at) },
      {
        title: 'State',
        fill: (cell, each) => fillBadge(cell, STATES[each.state]),
      },
      {
        title: 'Attempts',
        isNumber: true,
        text: each => number(each.attempts),
      },
      { title: 'Last answer', fill: fillAnswer },
      {
        title: 'Id',
        fill: (cell, each) => {
          if (!cell.firstChild) cell.append(make('code'));
          put(cell.firstChild, each.id);
        },
      },
    ],
    read: async (after, limit) => {
      found = await request(
        'GET',
        `${path('deliveries')}?${new URLSearchParams({ after, limit, state: $('select').value })}`,
      );
      return { items: found.deliveries, next: found.next };
    },
    acts: [
      { text: 'Resend', how: resend, may: each => each.state !== 'waiting' },
    ],
  }),
};

// The request has the number of attempts shown, so that only one of two operators can resend.
async function resend({ id, attempts }) {
  const { queued } = await request(
    'POST',
    `${path('deliveries', id, 'resend')}?attempts=${attempts}`,
  );
  return queued
    ? 'It is sent again now, once. Its answer is below in a moment.'
    : 'It is on its way already.';
}

async function resendAll() {
  const { failed } = await request('GET', `${path('deliveries')}?limit=1`);
  if (!failed) return 'None failed.';
  if (
    !(await ask({
      title: `Send ${many(failed, 'failed message', 'failed messages')} again?`,
      go: 'Resend',
      text: `Each is sent to ${name} once, oldest first, with its own id and what happened then: a program that keeps ids drops those that it has. Calls that are over are not sent.`,
    }))
  )
    return null;
  const { queued, waiting } = await request('POST', path('resend'));
  watch.soon();
  return `${many(queued, 'is', 'are')} sent again.${waiting ? ` ${many(waiting, 'was', 'were')} on their way already.` : ''}`;
}

async function test() {
  const { id } = await request('POST', path('test'));
  watch.soon(1200);
  return `The test ${id} is sent. Its answer is below in a moment.`;
}

async function look() {
  ({ webhooks: hooks } = await request('GET', '/admin/webhooks'));
  hooks.sort((a, b) => (b.state === 'failing') - (a.state === 'failing'));
  const hook = hooks.find(each => each.name === name);
  if (name && !hook)
    throw Object.assign(
      new Error(
        `There is no webhook called ${name}. ${hooks.length ? `There ${hooks.length === 1 ? 'is' : 'are'}: ${hooks.map(each => each.name).join(', ')}` : 'There are none'}`,
      ),
      { status: 404 },
    );
  if (name) return showOne(hook);
  await list.hooks.look();
  list.hooks.root.hidden = !hooks.length;
  part('all').querySelector('.none').hidden = hooks.length > 0;
}

async function showOne(hook) {
  const { host, format, is_signed: isSigned, events, rooms } = hook;
  await list.deliveries.look();
  fillBadge($('.health'), webhookState(hook).reverse());
  put(
    part('one').querySelector('.rules'),
    `To ${host}, ${format}, ${isSigned ? 'signed' : 'not signed'}; ${events.join(', ')}; ${rooms.length ? `of ${rooms.join(', ')}` : 'of all rooms'}. These are settings: change them in the settings file.`,
  );
  for (const each of ['waiting', 'failed', 'delivered'])
    put($(`[data-f=${each}]`), number(found[each]));
}

function open(at) {
  name = at;
  for (const table of Object.values(list)) table.restart();
  part('all').hidden = name !== null;
  part('one').hidden = name === null;
  put(part('one').querySelector('h2'), name ?? '');
  $('select').value = 'all';
  put($('.control output'), '');
  watch.open();
  return name === null ? null : part('one').querySelector('h2');
}

part('all').append(list.hooks.root);
$('[data-list=deliveries]').append(list.deliveries.root);
$('select').addEventListener('change', () => {
  list.deliveries.restart();
  watch.soon();
});
for (const [what, how] of [
  ['test', test],
  ['resend', resendAll],
])
  $(`[data-do=${what}]`).addEventListener('click', () =>
    tell($('.control output'), how),
  );
register({
  path: 'webhooks',
  title: 'Webhooks',
  root: section,
  open,
  close: () => watch.close(),
});
