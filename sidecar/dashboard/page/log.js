// The log of operators' changes: the view #/log of all rooms, and the latest entries in a room's
// card.

import { call, may, session, tell, undo } from './acts.js';
import { make, moment, number, put } from './draw.js';
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
// All entries by their keys, and the time of each room's earliest entry.
const acts = new Map(),
  ends = new Map();
let shown = PAGE,
  isAll = false,
  ahead = 0,
  timer;

const values = ([before, after]) =>
  [before, after].map(text => (text === '' ? null : JSON.parse(text)));

function learn(room, each) {
  const changes =
    each.changes &&
    Object.fromEntries(
      Object.entries(each.changes).map(([name, texts]) => [
        name,
        values(texts),
      ]),
    );
  acts.set(
    JSON.stringify([room, each.at, each.what, each.visitor, each.detail]),
    { ...each, room, changes },
  );
}

export function collected({ room, log }) {
  for (const each of log) learn(room, each);
  if (!ends.has(room)) ends.set(room, log.at(-1)?.at ?? Date.now());
  if (isOpen('log')) show();
}

const sorted = () => [...acts.values()].sort((a, b) => b.at - a.at);

// A change from the history has no earlier value, so it is taken from the change before.
function withBefore(all) {
  const known = new Map();
  for (const act of [...all].reverse()) {
    if (!act.changes && (act.what === 'change' || act.what === 'undo')) {
      try {
        act.changes = Object.fromEntries(
          Object.entries(JSON.parse(act.detail)).map(([name, value]) => [
            name,
            [known.get(`${act.room} ${name}`), value],
          ]),
        );
      } catch {
        /* a shortened text cannot be parsed, and stays as it is */
      }
    }
    for (const [name, [, after]] of Object.entries(act.changes ?? {}))
      known.set(`${act.room} ${name}`, after);
  }
  return all;
}

const VERBS = [
  ['queue_all', 1, true, 'paused'],
  ['queue_all', 0, true, 'resumed'],
  ['suspended', 1, true, 'suspended'],
  ['suspended', 0, true, 'ended the suspension'],
  ['max_waiting', 1, 0, 'drained'],
  ['max_waiting', 0, 0, 'resumed'],
];
const value = one => (one === null ? 'as configured' : JSON.stringify(one));

const isReal = ([, [from, to]]) => JSON.stringify(from) !== JSON.stringify(to);

export function did({ what, visitor, detail, changes }) {
  if (what === 'move') return `moved ${visitor} from ${detail}`;
  if (what === 'back') return `moved ${visitor} back, from ${detail}`;
  if (what === 'grade') return `gave ${visitor} another class, from ${detail}`;
  if (what === 'release') return `released ${visitor}`;
  if (what === 'reset')
    return `reset the queue: ${number(Number(detail))} places`;
  if (!changes) return [what, visitor, detail].filter(Boolean).join(' ');
  const real = Object.fromEntries(Object.entries(changes).filter(isReal));
  const verb =
    what === 'undo'
      ? 'undid'
      : VERBS.find(
          ([name, i, is]) => name in real && real[name][i] === is,
        )?.[3];
  const steps = Object.entries(real).map(
    ([name, [from, to]]) =>
      `${name}: ${from === undefined ? '' : `${value(from)} → `}${value(to)}`,
  );
  return [verb, steps.join(', ') || 'no change'].filter(Boolean).join(': ');
}

// Draws the entries again if they differ. `result` is the result of an undo.
function draw(into, all, result, hasRoom) {
  const lines = all.map(act => {
    const texts = [
      moment(act.at),
      ...(hasRoom ? [act.room] : []),
      act.by,
      did(act),
    ];
    return {
      act,
      texts,
      mayUndo:
        may('operator') &&
        act.revision != null &&
        act.what === 'change' &&
        Object.entries(act.changes).some(isReal) &&
        Date.now() - ahead - act.at < UNDO_MS,
    };
  });
  const key = JSON.stringify(
    lines.map(({ texts, mayUndo }) => [...texts, mayUndo]),
  );
  if (into.dataset.key === key) return;
  into.dataset.key = key;
  if (into.contains(document.activeElement))
    into.focus({ preventScroll: true });
  into.replaceChildren(
    ...(lines.length
      ? lines.map(({ act, texts, mayUndo }) => {
          const item = make('li');
          item.append(
            ...texts.map((text, i) => make(i ? 'span' : 'time', '', text)),
          );
          if (!mayUndo) return item;
          const button = make('button', '', 'Undo');
          button.type = 'button';
          button.setAttribute('aria-label', `Undo: ${texts.at(-1)}`);
          button.addEventListener('click', () =>
            tell(result, () => undo(act.room, act.revision)),
          );
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
    withBefore(sorted().filter(({ room }) => room === name)).slice(0, LATEST),
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
  const all = withBefore(sorted());
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
        learn(room, { ...each, at: Date.parse(each.at) });
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
