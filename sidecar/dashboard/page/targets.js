// The view of targets, #/targets. While the view is open it loads the targets, and shows if the
// replica does not answer.

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
const cards = new Map();
let timer,
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
    open: () => {
      isOpen = true;
      soon(0);
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
      await Promise.all([...cards.values()].map(card => card.collect()));
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
      section.querySelector('h1').focus({ preventScroll: true });
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
  none.hidden = targets.length > 0;
}

// Handles the reset of a target that is not in the settings file.
function gone(name) {
  put(
    section.querySelector('output'),
    `✓ ${name} is gone: the file does not have it.`,
  );
  soon(0);
}
