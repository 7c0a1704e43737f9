// The view of targets, #/targets, and of one, #/targets/mailer. While the view is open it loads the
// targets, and shows if the replica does not answer.

import { request } from './acts.js';
import { clock, put } from './draw.js';
import { watchJobs } from './all-jobs.js';
import { Target } from './target.js';
import { register } from './views.js';

const LOOK_MS = 2000;

const section = document.getElementById('targets');
const list = section.querySelector('.cards');
const note = section.querySelector('.away-note');
const none = section.querySelector('.none');
const missing = section.querySelector('.missing');
const title = section.querySelector('h1');
const back = section.querySelector('.crumbs');
const cards = new Map();
const RANKS = { lost: 0, running: 2 }; // all others are between these
let timer,
  named = null,
  isWatched = false,
  isOpen = false,
  awaySince = 0;

// Registers the view if jobs are configured.
export function watchTargets() {
  if (isWatched) return;
  isWatched = true;
  register({
    path: 'targets',
    title: 'Targets',
    root: section,
    open: name => {
      isOpen = true;
      named = name;
      soon(0);
      return arrange();
    },
    close: () => {
      isOpen = false;
      clearTimeout(timer);
    },
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && isOpen) soon(0);
  });
  watchJobs();
}

function soon(ms) {
  clearTimeout(timer);
  timer = setTimeout(look, ms);
}

async function look() {
  if (!document.hidden) {
    const began = Date.now();
    try {
      show((await request('GET', '/v1/targets')).targets, began);
      const shown = [...cards.values()].filter(card => !card.root.hidden);
      await Promise.all(shown.map(card => card.collect()));
      awaySince = 0;
    } catch (error) {
      awaySince ||= began;
      const old = cards.size
        ? `The figures below are old, since ${clock(awaySince)}. `
        : '';
      put(note, `${error.title ?? error.message}. ${old}Trying again …`);
    }
    note.hidden = !awaySince;
    section.classList.toggle('away', Boolean(awaySince));
  }
  if (isOpen) soon(LOOK_MS);
}

function show(targets, began) {
  for (const [name, card] of cards) {
    if (targets.some(each => each.name === name)) continue;
    if (card.root.contains(document.activeElement))
      title.focus({ preventScroll: true });
    card.root.remove();
    cards.delete(name);
  }
  for (const state of targets) {
    let card = cards.get(state.name);
    if (!card) {
      cards.set(
        state.name,
        (card = new Target(state.name, { gone, refresh: () => soon(0) })),
      );
      list.append(card.root);
    }
    card.now(state, began);
  }
  const isGone = named !== null && targets.length > 0 && !cards.has(named);
  put(missing, isGone ? `There is no target “${named}”.` : '');
  none.hidden = targets.length > 0;
  const heading = arrange();
  // The view was opened before the target was known.
  if (document.activeElement === title) heading?.focus({ preventScroll: true });
}

// Shows the target that the address names, or all, those with trouble first. Nothing moves while the
// pointer or the focus is in a card. Returns the heading to focus.
function arrange() {
  back.hidden = named === null;
  for (const [name, card] of cards)
    card.root.hidden = named !== null && name !== named;
  if (named !== null) return cards.get(named)?.root.querySelector('h2');
  const rank = card => RANKS[card.look] ?? 1;
  const all = [...cards.values()].sort((a, b) => rank(a) - rank(b));
  if (
    !list.matches(':hover, :focus-within') &&
    all.some((card, i) => list.children[i] !== card.root)
  )
    list.append(...all.map(card => card.root));
  return null;
}

// Handles the reset of a target that is not in the settings file.
function gone(name) {
  put(
    section.querySelector('output'),
    `✓ ${name} is gone: the file does not have it.`,
  );
  soon(0);
}
