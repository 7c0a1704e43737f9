// The first view: alerts, and a row for each room, lease, limit, target and webhook.

import { sparkline } from './chart.js';
import { duration, number, rate } from './draw.js';
import { MODES, shown } from './modes.js';
import { Rows } from './overview-rows.js';
import * as alerts from './alerts.js';
import { register } from './views.js';

const summary = document.getElementById('summary');
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
    ['Last hour', 'Waiting, at the end of each minute', ''],
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
    [''],
    [''],
    [''],
    [''],
    ['Alerts'],
  ]),
};
summary.append(...Object.values(tables).map(table => table.root));

const STATES = {
  away: ['No Redis', 'lost'],
  zero: ['Cap 0', 'warn'],
  recovering: ['Recovering', 'warn'],
  full: ['At cap', 'running'],
};
const hours = new Map();
let firing = [];

export function now({ rooms, alerts: found }) {
  firing = found;
  alerts.show(found);
  finder.hidden = rooms.length <= FINDS_ABOVE;
  if (finder.hidden) finder.lastElementChild.value = '';
  tables.rooms.show(rooms.map(room), found);
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
      state: each.away ? STATES.away : ['Counting', 'running'],
      cells: ['', '', rate(each.allowed), rate(each.refused), '', ''],
    })),
    firing,
    limits.more,
  );
  tables.targets.show(targets.rows.map(target), firing, targets.more);
  tables.webhooks.show(
    webhooks.rows.map(each => {
      const fails = firing.some(
        ({ alert, name, event }) =>
          alert === 'WaitroomWebhooksFail' &&
          each.events.includes(event) &&
          (!each.rooms.length || each.rooms.includes(name)),
      );
      return {
        name: each.name,
        kind: 'webhook',
        state: fails ? ['Failing', 'warn'] : ['On', 'running'],
        cells: [each.host, each.events.join(', '), '', '', '', ''],
      };
    }),
    firing,
    webhooks.more,
  );
}

function room(state) {
  const { settings, a_minute: went } = state;
  const cap = settings.total_active_users;
  const isRunning = shown(state) === 'running';
  let word = [MODES[shown(state)][0], isRunning ? 'running' : 'warn'];
  if (isRunning && state.active >= cap) word = STATES.full;
  if (cap === 0 && isRunning) word = STATES.zero;
  if (state.recovery_stage === 2) word = STATES.recovering;
  if (state.away) word = STATES.away;
  return {
    name: state.room,
    kind: 'room',
    state: word,
    hour: hours.get(state.room),
    cells: [
      `${number(state.active)} / ${number(cap)}`,
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
        state: STATES.away,
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

const TROUBLE = { stopped: 'lost', 'no runner': 'lost' };

function target(each) {
  const word = each.state ?? 'starting';
  return {
    name: each.name,
    kind: 'target',
    state: [
      word[0].toUpperCase() + word.slice(1),
      word === 'running' ? 'running' : (TROUBLE[word] ?? 'warn'),
    ],
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
