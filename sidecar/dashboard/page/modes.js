// The words for the states of rooms, targets and webhooks, which the replica names.

import { clock, duration, moment, number } from './draw.js';

// The state of a room: the word, its meaning, and how it looks.
const ROOM = {
  running: [
    'Running',
    'Those in the queue are let in as slots come free.',
    'running',
  ],
  at_cap: [
    'At cap',
    'All slots are taken. Those in the queue are let in as slots come free.',
    'running',
  ],
  cap_0: ['Cap 0', 'There are no slots: nobody is let in.', 'warn'],
  paused: ['Paused', 'Nobody is let in. Newcomers wait in the queue.', 'warn'],
  draining: [
    'Draining',
    'Nobody new joins the queue. Those in it are let in.',
    'warn',
  ],
  off: ['Off', 'Everybody passes, uncounted.', 'warn'],
  closed: [
    'Closed',
    'Nobody comes in, nobody takes a place, nobody is called.',
    'planned',
  ],
  prequeue: [
    'Pre-queue',
    'Places are taken. They are drawn at the opening, and nobody is let in before.',
    'planned',
  ],
  recovering: [
    'Recovering',
    'The store was emptied: places are coming back, and nobody is called.',
    'warn',
  ],
  no_redis: ['No Redis', 'The store does not answer.', 'lost'],
};

export function roomState({ state }) {
  // A replica of an older version sends no state.
  const [word, meaning, look] = ROOM[state] ?? ['', '', ''];
  return { word, meaning, look };
}

// Returns when a room opens that is closed or in a pre-queue, such as "opens in 25 h", or ''.
export function opening({ phase, event, coming, now_ms: now }) {
  const opens = phase === 'prequeue' ? event?.opens_at : coming?.opens_at;
  if (phase === 'open' || opens == null) return '';
  const minutes = Math.max(0, opens - now) / 60000;
  if (minutes < 1) return 'opens in a moment';
  if (minutes < 100) return `opens in ${Math.round(minutes)} min`;
  if (minutes < 48 * 60) return `opens in ${Math.round(minutes / 60)} h`;
  return `opens in ${Math.round(minutes / 60 / 24)} days`;
}

const WEBHOOK = {
  unused: ['Nothing sent', 'over'],
  delivers: ['Delivers', 'running'],
  waiting: ['Waiting', 'draining'],
  retrying: ['Retrying', 'draining'],
  failing: ['Not delivered', 'lost'],
  away: ['No Redis', 'lost'],
};

// Returns the word for the state of a webhook, and how it looks.
export function webhookState({ state, failing_since: since }) {
  const [word, look] = WEBHOOK[state];
  const time = since && moment(Date.parse(since)).slice(0, -3);
  return [since ? `${word} since ${time}` : word, look];
}

const TARGET = {
  'coming back': ['Coming back', 'paused'],
  paused: ['Paused', 'paused'],
  'no worker': ['No worker', 'lost'],
  failing: ['Failing', 'lost'],
  trying: ['Trying', 'draining'],
  held: ['Held', 'paused'],
  running: ['Running', 'running'],
};

// Returns the word for the state of a target, with the time of the next call if calls failed, and
// how it looks. A replica of an older version sends no state.
export function targetState(state, opensMs) {
  const [word, look] = TARGET[state] ?? ['Starting', 'paused'];
  const isTimed = state === 'failing' && opensMs;
  return [isTimed ? `${word}: next try ${clock(opensMs)}` : word, look];
}

// Says which settings of a room were changed at run time: the cap with the file's value, and how many
// others. Those by which the room was stopped are said by stoppedBy(). '' if there are none.
export function changedAtRunTime({ stopped, changed = {}, file }) {
  const { total_active_users: cap, ...others } = changed;
  const names = Object.keys(others).filter(
    name => !(stopped && STOPS.includes(name)),
  );
  const parts = [];
  if (cap != null)
    parts.push(`cap ${number(cap)}, file: ${number(file.total_active_users)}`);
  if (names.length) parts.push(`changed at run time: ${names.join(', ')}`);
  return parts.join('; ');
}

const STOPS = ['queue_all', 'max_waiting', 'suspended', 'hold'];
const STOPPED = { paused: 'Paused', draining: 'Drained', open: 'Suspended' };
// Says who stopped a room, how long ago, and why; '' if that is not known, or if the room runs.
export function stoppedBy({ mode, stopped, now_ms: now }) {
  if (!stopped) return '';
  const { by, at, why, until } = stopped;
  if (!by) return `${STOPPED[mode]} by the settings file`;
  const ago = at ? `, ${duration(Math.max(0, (now - at) / 1000))} ago` : '';
  const end = until ? `, until ${clock(until)}` : '';
  return `${STOPPED[mode]} by ${by}${ago}${end}${why ? `: ${why}` : ''}`;
}
