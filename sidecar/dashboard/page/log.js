// The log of operators' changes: the view #/log of all rooms, and the latest entries in a room's
// card.

import { call, change, may, session, tell, undo } from './acts.js';
import { make, moment, number, put } from './draw.js';
import { sure } from './forecast.js';
import { isOpen, register } from './views.js';

const PAGE = 50,
  UNDO_MS = 60000,
  LATEST = 5,
  TURN_MS = 5000;
const FOREVER = '9999d';

const root = document.getElementById('acts');
const $ = selector => root.querySelector(selector);
const [ofRoom, ofOperator] = ['room', 'operator'].map(name =>
  $(`[name=${name}]`),
);
const list = $('#log'),
  output = $('output'),
  older = $('[data-do=older]');
// All entries by their keys, the time of each room's earliest entry, and each room's state.
const acts = new Map(),
  ends = new Map(),
  states = new Map();
let shown = PAGE,
  isAll = false,
  ahead = 0,
  timer;

// Keeps an entry. `values` reads the values before and after from a change in it.
function learn(room, each, values) {
  const changes =
    each.changes &&
    Object.fromEntries(
      Object.entries(each.changes).map(([name, change]) => [
        name,
        values(change),
      ]),
    );
  const key = [room, each.at, each.what, each.visitor, each.detail];
  acts.set(JSON.stringify(key), { ...each, room, changes });
}

export function now(all) {
  for (const each of all) states.set(each.room, each);
}

export function collected({ room, log }) {
  const parse = text => (text === '' ? null : JSON.parse(text));
  for (const each of log) learn(room, each, texts => texts.map(parse));
  if (!ends.has(room)) ends.set(room, log.at(-1)?.at ?? Date.now());
  if (isOpen('log')) show();
}

const sorted = () => [...acts.values()].sort((a, b) => b.at - a.at);

const isReal = ([, [from, to]]) => JSON.stringify(from) !== JSON.stringify(to);

// Returns the values before a change, by setting, that are not in force now. Returns null if there
// are none.
function findBefore({ room, what, changes }) {
  const state = states.get(room);
  if (!state || !changes || !['change', 'undo'].includes(what)) return null;
  const { changed = {} } = state;
  const before = Object.entries(changes)
    .filter(isReal)
    .map(([name, [value]]) => [name, value])
    .filter(([name, value]) => isReal([name, [value, changed[name] ?? null]]));
  return before.length ? Object.fromEntries(before) : null;
}

function describeBefore(room, before, at) {
  const [[name, value], ...others] = Object.entries(before);
  const known = value ?? states.get(room).file[name];
  const isNumber = !others.length && typeof known === 'number';
  return `Put back${isNumber ? ` to ${number(known)}` : ''}, as at ${moment(at).slice(0, -3)}`;
}

const putBack = (room, before, text) => async () =>
  (await sure(states.get(room), before)) &&
  change(room, 'PATCH', '', before, () => `Done: ${text.toLowerCase()}.`);

// Draws the entries again if they differ. `result` is the result of a button.
function draw(into, all, result, hasRoom) {
  const lines = all.map(act => {
    const { room, at, by, text } = act,
      texts = [moment(at), ...(hasRoom ? [room] : []), by, text];
    const mayUndo =
      act.revision != null &&
      act.what === 'change' &&
      Object.entries(act.changes).some(isReal) &&
      Date.now() - ahead - at < UNDO_MS;
    if (!may('operator')) return { texts };
    if (mayUndo)
      return { texts, go: 'Undo', how: () => undo(room, act.revision) };
    const before = findBefore(act),
      go = before && describeBefore(room, before, at);
    if (!before) return { texts };
    return { texts, go, how: putBack(room, before, go), kind: 'later' };
  });
  const key = JSON.stringify(lines);
  if (into.dataset.key === key) return;
  into.dataset.key = key;
  if (into.contains(document.activeElement))
    into.focus({ preventScroll: true });
  into.replaceChildren(
    ...(lines.length
      ? lines.map(({ texts, go, how, kind }) => {
          const item = make('li');
          item.append(
            ...texts.map((text, i) => make(i ? 'span' : 'time', '', text)),
          );
          if (!go) return item;
          const button = make('button', kind, go);
          button.type = 'button';
          button.setAttribute('aria-label', `${go}: ${texts.at(-1)}`);
          button.addEventListener('click', () => tell(result, how));
          item.append(button);
          return item;
        })
      : [make('li', 'hint', 'Nothing yet.')]),
  );
}

// Shows the latest entries of one room in its card. `now` is a time of Redis, as are the entries'
// times.
export function latest(card, name, now) {
  ahead = Date.now() - now;
  draw(
    card.querySelector('.latest ol'),
    sorted()
      .filter(({ room }) => room === name)
      .slice(0, LATEST),
    card.querySelector('.latest output'),
    false,
  );
}

function options(select, names, all) {
  const key = names.join('\n');
  if (select.dataset.key === key) return;
  select.dataset.key = key;
  const chosen = select.value;
  select.replaceChildren(
    ...['', ...names].map(name => {
      const option = make('option', '', name || all);
      option.value = name;
      return option;
    }),
  );
  select.value = names.includes(chosen) ? chosen : '';
}

function show() {
  const all = sorted();
  options(ofRoom, [...ends.keys()].sort(), 'All rooms');
  options(
    ofOperator,
    [...new Set(all.map(({ by }) => by))].sort(),
    'Everybody',
  );
  const found = all.filter(
    act =>
      (!ofRoom.value || act.room === ofRoom.value) &&
      (!ofOperator.value || act.by === ofOperator.value),
  );
  draw(list, found.slice(0, shown), output, true);
  const isMore = found.length > shown || (session.history && !isAll);
  older.hidden = !isMore;
  put(
    $('.count'),
    `${number(Math.min(shown, found.length))} shown.${isMore ? '' : session.history ? ' That is all.' : ' Older ones are kept with a history.'}`,
  );
}

// Loads earlier entries of the rooms that are shown from the history.
async function readOlder() {
  const rooms = ofRoom.value ? [ofRoom.value] : [...ends.keys()];
  const pages = await Promise.all(
    rooms.map(async room => {
      const to = new Date(ends.get(room)).toISOString();
      const { changes } = await call(
        'GET',
        `/${room}/changes?from=${FOREVER}&to=${encodeURIComponent(to)}&limit=${PAGE}`,
      );
      for (const each of changes)
        learn(room, { ...each, at: Date.parse(each.at) }, ({ from, to }) => [
          from,
          to,
        ]);
      if (changes.length) ends.set(room, Date.parse(changes.at(-1).at));
      return changes.length;
    }),
  );
  if (!ofRoom.value && pages.every(length => length < PAGE)) isAll = true;
  return pages.some(length => length > 0);
}

older.addEventListener('click', () =>
  tell(output, async () => {
    const isNew = session.history && (await readOlder());
    shown += PAGE;
    show();
    return isNew || !session.history
      ? null
      : { text: 'There is nothing older here.', isNothing: true };
  }),
);
for (const select of [ofRoom, ofOperator]) {
  select.addEventListener('change', () => {
    shown = PAGE;
    show();
  });
}

register({
  path: 'log',
  title: 'Log',
  root,
  isLast: true,
  open: name => {
    if (name && ends.has(name)) {
      show();
      ofRoom.value = name;
    }
    timer = setInterval(show, TURN_MS); // an undo is possible for a minute
    show();
  },
  close: () => clearInterval(timer),
});
