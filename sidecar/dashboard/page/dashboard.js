// The connection to the replica: the session, the events, and the notices when no events come.

import { session } from './acts.js';
import { clock, number, put } from './draw.js';
import * as overview from './overview.js';
import * as rooms from './rooms.js';
import './leases.js';
import './limits.js';
import { watchTargets } from './targets.js';
import './webhooks.js';
import * as log from './log.js';
import './look.js';
import './search.js';
import { begin, title } from './views.js';

const $ = id => document.getElementById(id);
const STALE_MS = 4000,
  DEAD_MS = 15000,
  AGAIN_MS = 1500;

let source,
  heardAt = 0,
  triedAt = 0,
  isLost = false;

async function connect() {
  source?.close();
  source = null;
  triedAt = Date.now();
  try {
    const reply = await fetch('/dashboard/session', {
      cache: 'no-store',
      signal: AbortSignal.timeout(5000),
    });
    if (reply.status === 401) return location.reload(); // to the log-in
    const {
      operator,
      role,
      by,
      csrf,
      history,
      jobs,
      in_memory: isInMemory,
    } = await reply.json();
    Object.assign(session, { csrf, history, jobs, role });
    document.body.dataset.role = role;
    put($('operator'), operator);
    put($('role'), role);
    $('logout').hidden = by === 'proxy';
    $('logout-all').hidden = by !== 'password';
    $('memory').hidden = !isInMemory;
    if (jobs) watchTargets();
  } catch {
    return lose();
  }
  source = new EventSource('/dashboard/events');
  source.addEventListener('now', event =>
    hear(() => now(JSON.parse(event.data))),
  );
  source.addEventListener('study', event =>
    hear(() => collected(JSON.parse(event.data))),
  );
  source.addEventListener('others', event =>
    hear(() => overview.others(JSON.parse(event.data))),
  );
  source.addEventListener('end', () => location.reload());
  source.addEventListener('again', connect);
  source.addEventListener('error', lose);
}

function hear(show) {
  heardAt = Date.now();
  isLost = false;
  show();
  state();
}

function lose() {
  isLost = true;
  state();
}

// Shows whether the figures are current.
function state() {
  const isStale = isLost || (heardAt && Date.now() - heardAt > STALE_MS);
  document.body.classList.toggle('stale', Boolean(isStale));
  const link = $('link');
  put(link, isStale ? 'No connection' : heardAt ? 'Live' : 'Connecting');
  link.dataset.kind = isStale ? 'lost' : heardAt ? 'live' : 'wait';
  const banner = $('stale');
  if (isStale)
    put(
      banner,
      heardAt
        ? `Stale since ${clock(heardAt)}: the replica does not answer. The figures below are old. Trying again …`
        : 'The replica does not answer. Trying again …',
    );
  banner.hidden = !isStale;
}

setInterval(() => {
  state();
  const age = Date.now() - Math.max(heardAt, triedAt);
  const isClosed = !source || source.readyState === EventSource.CLOSED;
  if (isClosed ? Date.now() - triedAt > AGAIN_MS : age > DEAD_MS) connect();
}, 500);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && Date.now() - heardAt > STALE_MS) connect();
});
addEventListener('online', connect);
addEventListener('pagehide', () => source?.close());
addEventListener('pageshow', event => {
  if (event.persisted) connect();
});

function now(found) {
  const states = found.rooms;
  $('empty')?.remove();
  overview.now(found);
  rooms.now(states);
  log.now(states);
  const waiting = states.reduce((sum, each) => sum + (each.waiting || 0), 0);
  document.title = `${number(waiting)} waiting – ${title()} – Waitroom`;
}

function collected(found) {
  overview.collected(found);
  rooms.collected(found);
  log.collected(found);
}

async function logOut(query) {
  try {
    await fetch(`/dashboard/logout${query}`, {
      method: 'POST',
      headers: { 'X-Waitroom-CSRF': session.csrf },
      redirect: 'manual',
    });
  } catch {
    /* the page shows that the replica does not answer */
  }
  location.reload();
}

$('logout').addEventListener('click', () => logOut(''));
$('logout-all').addEventListener('click', () => logOut('?everywhere'));
begin();
connect();
