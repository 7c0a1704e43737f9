// A wall display, which shows a room's figures and needs no operator.

import { clock, duration, number, put, rate } from './draw.js';
import { opening, roomState } from './modes.js';

const $ = id => document.getElementById(id);
const STALE_MS = 4000;
let heardAt = 0;

function show(state) {
  put($('room'), state.room);
  put(
    $('state'),
    [roomState(state).word, opening(state)].filter(Boolean).join(', '),
  );
  $('state').dataset.kind = state.state;
  put($('waiting'), number(state.waiting));
  put($('active'), number(state.active));
  put($('cap'), `of ${number(state.cap)}`);
  document.querySelector('progress').value = state.cap
    ? Math.min(1, state.active / state.cap)
    : 0;
  put($('wait'), duration(state.wait_seconds));
  for (const name of ['joined', 'admitted', 'abandoned'])
    put($(name), rate(state.a_minute?.[name]));
  document.title = `${number(state.waiting)} waiting – ${state.room}`;
  heardAt = Date.now();
}

const source = new EventSource(location.pathname + '/events');
source.addEventListener('now', event => show(JSON.parse(event.data)));

setInterval(() => {
  put($('clock'), clock(Date.now()).slice(0, 5));
  const isStale = heardAt > 0 && Date.now() - heardAt > STALE_MS;
  document.body.classList.toggle('stale', isStale);
  $('stale').hidden = !isStale;
  if (isStale)
    put($('stale'), `No connection since ${clock(heardAt)}. Trying again …`);
  if (source.readyState === EventSource.CLOSED) location.reload(); // the link may have expired
}, 1000);
