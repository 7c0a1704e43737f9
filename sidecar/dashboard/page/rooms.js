// The view of one room: #/rooms/sale. A room's card is built when the view is opened.

import { put } from './draw.js';
import { Room } from './room.js';
import { register } from './views.js';

const root = document.getElementById('rooms');
const nowhere = root.querySelector('.nowhere');
const cards = new Map(),
  states = new Map(),
  studies = new Map();
let named = null,
  sought = null;

export function now(all) {
  for (const each of all) states.set(each.room, each);
  if (named !== null) show();
}

export function collected(found) {
  studies.set(found.room, found);
  if (found.room === named) cards.get(named)?.collected(found);
}

// Shows the room's card, once the first figures have come.
function show() {
  const state = states.get(named);
  if (state && !cards.has(named)) {
    const card = new Room(named);
    cards.set(named, card);
    root.append(card.root);
  }
  for (const [name, card] of cards) card.root.hidden = name !== named;
  nowhere.hidden = Boolean(state) || !states.size;
  put(
    nowhere,
    named ? `There is no room “${named}”.` : 'Choose a room in the overview.',
  );
  const card = cards.get(named);
  if (!state) return nowhere;
  const isNew = !card.state;
  card.now(state);
  if (sought) card.people.find(sought);
  sought = null;
  if (isNew && studies.has(named)) card.collected(studies.get(named));
  return card.root.querySelector('h1');
}

register({
  path: 'rooms',
  title: 'Room',
  root,
  isListed: false,
  open: (name, visitor) => {
    named = name ?? '';
    sought = visitor;
    const heading = show();
    if (studies.has(named)) cards.get(named)?.collected(studies.get(named));
    return heading;
  },
  close: () => {
    named = null;
  },
});
