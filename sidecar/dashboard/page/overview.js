// The first view: alerts, and a row for each room, lease, limit, target and webhook.

import { sparkline } from './chart.js';
import { duration, number, put, rate } from './draw.js';
import {
  changedAtRunTime,
  opening,
  roomState,
  stoppedBy,
  targetState,
  webhookState,
} from './modes.js';
import { Rows } from './overview-rows.js';
import * as alerts from './alerts.js';
import { register } from './views.js';

const summary = document.getElementById('summary');
const totals = document.getElementById('totals');
const finder = document.getElementById('find-room');
const FINDS_ABOVE = 10;

const minute = 'in the last minute';
const here = `${minute}, as this replica counts them`;
// The heads of the columns of each kind: the text, the meaning, and the short text.
const tables = {
  rooms: new Rows('Rooms', 'rooms', [
    ['State'],
    [
      'Inside / cap',
      'Sessions, called visitors included, and how many there may be',
      'inside',
    ],
    ['Waiting', 'Visitors in the queue', 'waiting'],
    ['In / min', `Let in ${minute}`, 'in/min'],
    ['Out / min', `Sessions that ended ${minute}`, 'out/min'],
    ['Wait now', 'Estimate for a newcomer', 'wait'],
    [
      'Last hour',
      'Waiting, at the end of each minute. The number is the top of the curve',
      '',
    ],
    ['Alerts'],
  ]),
  leases: new Rows('Leases', 'leases', [
    ['State'],
    ['Held', 'Leases that somebody has', 'held'],
    ['Waiting', 'Holders in the queues of all resources', 'waiting'],
    ['Resources', 'Held or waited for', 'resources'],
    [''],
    [''],
    [''],
    ['Alerts'],
  ]),
  limits: new Rows('Limits', 'limits', [
    ['State'],
    [''],
    [''],
    ['Allowed / min', `Calls that may go, ${here}`, 'allowed/min'],
    ['Refused / min', `Calls refused ${here}`, 'refused/min'],
    [''],
    [''],
    ['Alerts'],
  ]),
  targets: new Rows('Targets', 'targets', [
    ['State'],
    [
      'Running / most',
      'Calls in progress, and how many there may be',
      'running',
    ],
    ['Pending', 'Jobs that wait', 'pending'],
    ['Called / min', `Calls that began ${minute}`, 'called/min'],
    ['Ended / min', `Calls completed or failed ${minute}`, 'ended/min'],
    ['Wait now', 'Estimate for a new job', 'wait'],
    [''],
    ['Alerts'],
  ]),
  webhooks: new Rows('Webhooks', 'webhooks', [
    ['State'],
    ['Host'],
    ['Events'],
    ['Waiting', 'Messages that wait to be sent', 'waiting'],
    ['Failed', 'Messages that were given up, of those that are kept', 'failed'],
    [''],
    [''],
    ['Alerts'],
  ]),
};
summary.append(...Object.values(tables).map(table => table.root));

const AWAY = ['No Redis', 'lost'];
const hours = new Map();
let firing = [];

export function now({ rooms, alerts: found }) {
  firing = found;
  alerts.show(found);
  finder.hidden = rooms.length <= FINDS_ABOVE;
  if (finder.hidden) finder.lastElementChild.value = '';
  tables.rooms.show(rooms.map(room), found);
  sum(rooms);
}

// Draws the line of a row, again after each minute.
export function collected({ room: name, minutes }) {
  const key = minutes.ends_ms.at(-1);
  if (hours.get(name)?.key !== key)
    hours.set(name, {
      key,
      picture: sparkline(minutes.waiting),
      most: Math.max(...minutes.waiting, 0),
    });
}

export function others({ leases, limits, targets, webhooks }) {
  tables.leases.show(leases.rows.flatMap(template), firing, leases.more);
  tables.limits.show(
    limits.rows.map(each => ({
      name: each.name,
      kind: 'limit',
      state: each.away ? AWAY : ['Counting', 'running'],
      cells: ['', '', rate(each.allowed), rate(each.refused), '', ''],
    })),
    firing,
    limits.more,
  );
  const targetRows = targets.rows.map(target);
  tables.targets.show(targetRows, firing, targets.more);
  const webhookRows = webhooks.rows.map(webhook);
  tables.webhooks.show(webhookRows, firing, webhooks.more);
  put(
    totals.lastElementChild,
    [
      [targetRows, 'targets'],
      [webhookRows, 'webhooks'],
    ]
      .map(([rows, what]) => [
        rows.filter(({ state: [, look] }) => look === 'lost').length,
        rows.length,
        what,
      ])
      .filter(([ill]) => ill)
      .map(([ill, all, what]) => `${ill} of ${all} ${what} in trouble`)
      .join(' · '),
  );
}

function webhook(each) {
  const [word, look] = webhookState(each);
  return {
    name: each.name,
    kind: 'webhook',
    state: [word, { draining: 'warn', over: '' }[look] ?? look],
    cells: [
      each.host,
      each.events.join(', '),
      number(each.waiting),
      number(each.failed),
      '',
      '',
    ],
  };
}

// Shows the totals of all rooms, and how many are in each state that is not as usual.
function sum(rooms) {
  const total = of => rooms.reduce((all, each) => all + (of(each) || 0), 0);
  const words = rooms
    .map(each => roomState(each))
    .filter(({ look }) => look !== 'running');
  const counts = [...new Set(words.map(({ word }) => word))].map(
    word =>
      `${number(words.filter(each => each.word === word).length)} ${word.replace(/^[A-Z](?=[a-z])/, first => first.toLowerCase())}`,
  );
  put(
    totals.firstElementChild,
    [
      `${number(rooms.length)} ${rooms.length === 1 ? 'room' : 'rooms'}${counts.length ? ` (${counts.join(', ')})` : ''}`,
      `${number(total(each => each.waiting))} waiting`,
      `${number(total(each => each.active))} of ${number(total(each => each.cap ?? each.settings.total_active_users))} inside`,
      `${rate(total(each => each.a_minute?.admitted))} let in a minute`,
    ].join(' · '),
  );
}

function room(state) {
  const { settings, a_minute: went } = state;
  const { word, look } = roomState(state);
  return {
    name: state.room,
    kind: 'room',
    state: [[word, opening(state)].filter(Boolean).join(', '), look],
    isBusy: state.waiting > 0,
    hour: hours.get(state.room),
    note: [stoppedBy(state), changedAtRunTime(state)]
      .filter(Boolean)
      .join(' · '),
    cells: [
      `${number(state.active)} / ${number(state.cap ?? settings.total_active_users)}`,
      number(state.waiting),
      rate(went?.admitted),
      rate(went?.ended),
      duration(state.wait_seconds),
    ],
  };
}

// Returns the row of a template, and a row for each of the longest queues of its resources.
function template(each) {
  if (each.away)
    return [
      {
        name: each.name,
        kind: 'lease',
        state: AWAY,
        cells: ['', '', '', '', '', ''],
      },
    ];
  const some = each.is_part ? '≥ ' : '';
  const rows = [
    {
      name: each.name,
      kind: 'lease',
      state: ['Running', 'running'],
      cells: [
        some + number(each.held),
        some + number(each.waiting),
        number(each.resources),
        '',
        '',
        '',
      ],
    },
  ];
  for (const queue of each.queues) {
    rows.push({
      name: `${each.name} ${queue.name}`,
      text: `↳ ${queue.name}`,
      of: each.name,
      kind: 'queue',
      state: ['Queue', ''],
      cells: [
        `${number(queue.held)} / ${number(each.capacity)}`,
        number(queue.waiting),
        '',
        '',
        '',
        '',
      ],
    });
  }
  if (each.more)
    rows.push({
      name: `${each.name} more`,
      text: `and ${number(each.more)} more queues`,
      of: each.name,
      kind: 'queue',
      state: ['', ''],
      cells: ['', '', '', '', '', ''],
    });
  return rows;
}

function target(each) {
  const [word, look] = targetState(each.state, each.opens_at_ms);
  return {
    name: each.name,
    kind: 'target',
    state: [word, /lost|running/.test(look) ? look : 'warn'],
    cells: [
      `${number(each.running)} / ${number(each.concurrency)}`,
      number(each.waiting),
      rate(each.called),
      rate(each.ended),
      duration(each.wait_seconds),
      '',
    ],
  };
}

finder.addEventListener('input', () =>
  tables.rooms.filter(finder.lastElementChild.value),
);

register({
  path: '',
  title: 'Overview',
  root: document.getElementById('overview'),
  open: () => null,
  close: () => {
    /* later events draw the rows */
  },
});
