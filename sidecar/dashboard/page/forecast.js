// Describes the effect of a change of a room's settings. The figures are the room's estimate,
// which the replica computes with the changed settings.

import { ask, call } from './acts.js';
import { duration, moment, number } from './draw.js';

const LONGEST_MS = 3000;

// Loads the forecast for the changes. Resolves to null if there is no forecast.
export async function forecast(room, changes) {
  const late = new Promise(resolve => {
    setTimeout(resolve, LONGEST_MS, null);
  });
  try {
    return await Promise.race([
      call('POST', `/${room}/forecast`, changes),
      late,
    ]);
  } catch {
    return null;
  }
}

const at = (found, seconds) =>
  moment(found.at_ms + seconds * 1000).slice(0, -3);

// Describes when the last visitor in the queue is admitted, with and without the change.
function last(found) {
  const { now, then } = found;
  if (then.last_called_seconds == null) return '';
  const [at_then, at_now] = [then, now].map(each =>
    each.last_called_seconds == null
      ? 'not known'
      : at(found, each.last_called_seconds),
  );
  return `the last of the ${number(found.waiting)} waiting now gets in at about ${at_then}${at_then === at_now ? ', as now' : ` (now: ${at_now})`}`;
}

const sentence = text =>
  text ? `${text[0].toUpperCase()}${text.slice(1)}.` : '';

// Returns the reason why nobody is admitted with any settings.
function still({ settings, phase, event }, name, value) {
  if (settings.queue_all)
    return 'The room is paused: nobody is called until you resume.';
  if (settings.suspended)
    return 'The room is suspended: everybody passes, whatever you set.';
  if (phase !== 'open') return 'Nobody is called before the room opens.';
  if (event?.replaces.includes(name))
    return `While ${event.name} is open, its own value holds: ${words(name, value)} comes after it.`;
  return '';
}

// Asks before a change of the cap or the rate that admits far more: a cap that more than doubles, or
// more than twice as many calls. Steps of 10 % do not ask. Resolves to true if it may be made.
export async function sure(state, changes) {
  const isAdmission =
    'total_active_users' in changes || 'new_users_per_minute' in changes;
  const { total_active_users: cap } = state.settings;
  const found = isAdmission && (await forecast(state.room, changes));
  const to =
    changes.total_active_users === null
      ? state.file.total_active_users
      : (changes.total_active_users ?? cap);
  const [now, then] = found
    ? [found.now, found.then].map(each => each.called_in_a_minute)
    : [0, 0];
  const usual = Math.max(now, Math.ceil(cap / 10), 1);
  if (to <= 2 * Math.max(cap, 1) && then <= 2 * usual) return true;
  const isCap = to > cap;
  return ask({
    title: isCap
      ? `Raise the cap from ${number(cap)} to ${number(to)}?`
      : `Call ${number(then)} in a minute?`,
    go: isCap ? `Raise to ${number(to)}` : 'Let them in',
    text: `${found ? `About ${number(then)} are called within a minute; now it is ${number(now)}. ` : ''}Whoever is let in stays: a pause stops only those who come after. To go slowly, use +10 %.`,
  });
}

const words = (name, value) =>
  name === 'total_active_users'
    ? `a cap of ${number(value)}`
    : value == null
      ? 'no rate'
      : `a rate of ${number(value)} a minute`;

export function sayCap(state, found, cap) {
  const { waiting, active, now, then } = found;
  const held = still(state, 'total_active_users', cap);
  if (held) return `Set to ${number(cap)}. ${held}`;
  if (cap === 0)
    return `Set to 0: nobody is called. ${number(waiting)} wait, and the ${number(active)} inside stay.`;
  const what = cap > now.cap ? 'Raise' : 'Lower';
  if (active > cap) {
    const when = then.first_called_seconds
      ? `, about ${duration(then.first_called_seconds)} at the present rate`
      : '';
    return `${what} to ${number(cap)}: ${number(active)} are inside: nobody is called until ${number(active - cap)} have left${when}. ${sentence(last(found))}`;
  }
  if (!waiting)
    return `${what} to ${number(cap)}: nobody waits; ${number(cap - active)} more can come in at once.`;
  const more = then.called_in_a_minute - now.called_in_a_minute;
  const called = more
    ? `${number(Math.abs(more))} ${more > 0 ? 'more' : 'fewer'} are called within about a minute`
    : `as many as now are called within a minute, ${number(now.called_in_a_minute)}`;
  return `${what} to ${number(cap)}: ${called}. ${sentence(last(found))}`;
}

export function sayRate(state, found, value) {
  const held = still(
    state,
    'new_users_per_minute',
    value ?? state.file.new_users_per_minute,
  );
  const configured = state.file.new_users_per_minute;
  const what =
    value != null
      ? `At ${number(value)} a minute`
      : configured == null
        ? 'Without a rate'
        : `As configured, ${number(configured)} a minute`;
  if (held) return `${what}. ${held}`;
  if (!found.waiting) return `${what}: nobody waits now.`;
  return `${what} ${last(found) || 'it is not known when the last of those waiting gets in'}.`;
}

export const sayPause = (state, found) =>
  `Nobody is called${found ? ` (now about ${number(found.now.called_in_a_minute)} a minute)` : ''}. ${number(state.waiting)} wait, and newcomers join them. The ${number(state.active)} inside stay.`;

export function sayResume(state, found) {
  const { waiting } = state;
  if (!state.settings.queue_all)
    return `Resume: newcomers may join the queue again; ${number(waiting)} wait.`;
  if (!waiting)
    return 'Resume: nobody waits; newcomers come in as far as there is room.';
  if (!found || found.then.first_called_seconds == null)
    return `Resume: the ${number(waiting)} waiting are called as slots come free.`;
  return `Resume: ${number(found.then.called_in_a_minute)} are called within about a minute; the last of the ${number(waiting)} waiting gets in at about ${at(found, found.then.last_called_seconds ?? 0)}.`;
}

export function sayDrain(state, found) {
  const until =
    found?.then.last_called_seconds == null
      ? ''
      : `, the last of them at about ${at(found, found.then.last_called_seconds)}`;
  return `Newcomers see that the room is full, as long as anybody waits. The ${number(state.waiting)} in the queue are let in${until}.`;
}
