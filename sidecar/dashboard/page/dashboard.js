// The connection: who is logged in, the events, and what the page says when they stop.

import { session } from './acts.js';
import { clock, make, moment, number, put } from './draw.js';
import { shown } from './modes.js';
import { Room } from './room.js';
import { watchTargets } from './targets.js';

const $ = id => document.getElementById(id);
const STALE_MS = 4000, DEAD_MS = 15000, AGAIN_MS = 1500;
const LOG_SHOWN = 100;

const rooms = new Map();
const logs = new Map();
let source, heardAt = 0, triedAt = 0, isLost = false;

async function connect() {
	source?.close();
	source = null;
	triedAt = Date.now();
	try {
		const reply = await fetch('/dashboard/session', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
		if (reply.status === 401) return location.reload(); // to the log-in
		const { operator, csrf, history, jobs, in_memory: isInMemory } = await reply.json();
		Object.assign(session, { csrf, history, jobs });
		put($('operator'), operator);
		$('memory').hidden = !isInMemory;
		if (jobs) watchTargets();
	} catch (error) {
		return lose();
	}
	source = new EventSource('/dashboard/events');
	source.addEventListener('now', event => hear(() => now(JSON.parse(event.data))));
	source.addEventListener('study', event => hear(() => collected(JSON.parse(event.data))));
	source.addEventListener('end', () => location.reload());
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

// Says whether the figures are of now.
function state() {
	const isStale = isLost || (heardAt && Date.now() - heardAt > STALE_MS);
	document.body.classList.toggle('stale', Boolean(isStale));
	const link = $('link');
	put(link, isStale ? 'No connection' : heardAt ? 'Live' : 'Connecting');
	link.dataset.kind = isStale ? 'lost' : heardAt ? 'live' : 'wait';
	const banner = $('stale');
	if (isStale) put(banner, heardAt ? `Stale since ${clock(heardAt)}: the replica does not answer. The figures below are old. Trying again …` : 'The replica does not answer. Trying again …');
	banner.hidden = !isStale;
}

setInterval(() => {
	state();
	const age = Date.now() - Math.max(heardAt, triedAt);
	const isClosed = !source || source.readyState === EventSource.CLOSED;
	if (isClosed ? Date.now() - triedAt > AGAIN_MS : age > DEAD_MS) connect();
}, 500);
document.addEventListener('visibilitychange', () => { if (!document.hidden && Date.now() - heardAt > STALE_MS) connect(); });
addEventListener('online', connect);
addEventListener('pagehide', () => source?.close());
addEventListener('pageshow', event => { if (event.persisted) connect(); });

function now({ rooms: states }) {
	$('empty')?.remove();
	for (const each of states) {
		let room = rooms.get(each.room);
		if (!room) {
			rooms.set(each.room, room = new Room(each.room));
			$('rooms').append(room.root);
		}
		room.now(each);
	}
	index(states);
	const waiting = states.reduce((sum, each) => sum + (each.waiting || 0), 0);
	document.title = `${number(waiting)} waiting – Waitroom`;
}

function collected(found) {
	rooms.get(found.room)?.collected(found);
	logs.set(found.room, found.log);
	log();
}

// With several rooms: all of them at a glance, and the way to each. Targets have a list of theirs.
function index(states) {
	$('index').firstElementChild.hidden = states.length < 2;
	const list = $('index').firstElementChild;
	states.forEach((each, i) => {
		let item = list.children[i];
		if (!item) {
			item = make('li');
			const link = make('a');
			link.href = `#room-${each.room}`;
			link.append(make('strong', '', each.room), make('span'), make('span'));
			item.append(link);
			list.append(item);
		}
		const [, numbers, mode] = item.firstElementChild.children;
		put(numbers, `${number(each.waiting)} waiting, ${number(each.active)} of ${number(each.settings.total_active_users)} inside`);
		put(mode, each.away ? 'store unavailable' : shown(each));
		item.dataset.kind = each.away ? 'lost' : shown(each);
	});
}

function log() {
	const all = [...logs].flatMap(([room, acts]) => acts.map(act => ({ ...act, room })));
	all.sort((a, b) => b.at - a.at);
	const lines = all.slice(0, LOG_SHOWN).map(act => [moment(act.at), act.room, act.by, did(act)]);
	$('acts').hidden = !heardAt;
	const list = $('log');
	const key = JSON.stringify(lines);
	if (list.dataset.key === key) return;
	list.dataset.key = key;
	list.replaceChildren(...(lines.length ? lines.map(texts => {
		const item = make('li');
		item.append(...texts.map((text, i) => make(i ? 'span' : 'time', '', text)));
		return item;
	}) : [make('li', 'hint', 'Nothing yet.')]));
}

function did({ what, visitor, detail }) {
	if (what === 'move') return `moved ${visitor} from ${detail}`;
	if (what === 'back') return `moved ${visitor} back, from ${detail}`;
	if (what === 'grade') return `gave ${visitor} another class, from ${detail}`;
	if (what === 'release') return `released ${visitor}`;
	if (what === 'reset') return `reset the queue: ${number(Number(detail))} places`;
	if (what !== 'change') return [what, visitor, detail].filter(Boolean).join(' ');
	try {
		return Object.entries(JSON.parse(detail)).map(([name, value]) => value === null ? `${name} as in the file` : `${name} = ${JSON.stringify(value)}`).join(', ');
	} catch (error) {
		return detail;
	}
}

$('logout').addEventListener('click', async () => {
	try {
		await fetch('/dashboard/logout', { method: 'POST', headers: { 'X-Waitroom-CSRF': session.csrf }, redirect: 'manual' });
	} catch (error) { /* the page says by itself that nobody answers */ }
	location.reload();
});
connect();
