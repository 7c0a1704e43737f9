'use strict';
{
const root = document.documentElement;
const { room, next, method, refresh } = root.dataset;
const api = `/_waitroom/${room}/`;
const $ = id => document.getElementById(id);
const random = (low, high) => low + Math.random() * (high - low);
const put = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };

// Language: the one the page was made in, else the first of the browser's that we have.
const langs = ['en', 'zh-CN', 'ja', 'ko', 'es', 'fr', 'de', 'ar'];
const base = tag => tag.toLowerCase().split('-')[0];
const lang = [root.lang, ...navigator.languages].map(tag => langs.find(l => base(l) === base(tag))).find(Boolean) || 'en';
// Numbers and times as the visitor's region writes them.
let locale = lang + '-u-nu-latn';
try {
	locale = String(new Intl.Locale(navigator.languages.find(tag => base(tag) === base(lang)) || lang, { numberingSystem: 'latn' }));
} catch (e) { /* no tag that it knows */ }
const number = n => n == null ? '' : n.toLocaleString(locale);
const site = $('site').textContent.trim();
let texts;

root.lang = lang;
root.dir = lang === 'ar' ? 'rtl' : 'ltr';
if (root.dataset.state === 'not_queued') root.dataset.state = 'waiting'; // about to join
if ((lang !== 'en' || root.dataset.state !== 'waiting') && !refresh) {
	root.classList.add('load'); // no flash of English, nor of another heading
	setTimeout(() => root.classList.remove('load'), 1500);
}

async function loadTexts() {
	if (texts) return;
	try {
		texts = await (await fetch(`/_waitroom/static/i18n/${lang}.json`)).json();
		document.querySelectorAll('[data-t]').forEach(e => { e.textContent = texts[e.dataset.t]; });
		render();
	} catch (e) { /* the next poll tries again */ }
	if (root.dataset.state === 'waiting') root.classList.remove('load');
}

// The estimate in words; the server words it by the same rules.
function words({ wait_seconds: mid, wait_seconds_low: low, wait_seconds_high: high }) {
	if (low == null) low = mid;
	if (high == null) high = mid;
	if (low == null || high == null) return texts.wait_unknown;
	if (high <= 60) return texts.wait_less;
	if (low >= 7200) return texts.wait_more;
	const step = high <= 1200 ? 1 : high <= 3600 ? 5 : 10;
	low = Math.floor(low / 60 / step) * step;
	high = Math.ceil(high / 60 / step) * step;
	return (low ? texts.wait_about : texts.wait_under).replace('{n}', low && low < high ? `${low}–${high}` : high);
}

// What this tab remembers; without storage, for as long as the page lives.
let store = {}, lasting = false;
try { sessionStorage.wr = ''; store = sessionStorage; lasting = true; } catch (e) { /* refused */ }
const recall = key => JSON.parse(store[`wr-${room}-${key}`] || '{}');
const keep = (key, value) => { try { store[`wr-${room}-${key}`] = JSON.stringify(value); } catch (e) { /* full */ } };

const views = {
	waiting: ['heading', 'intro'], admitted: ['turn', 'turn_intro'], full: ['full', 'stay'],
	closed: ['closed', 'stay'], left: ['left'], not_queued: ['lost', 'lost_intro'],
	opens: ['opens_on', 'opens_intro'], prequeue: ['prequeue', 'equal']
};
let data, left = false, ticker;

function viewed({ state, phase, opens_at: opens }) {
	if (left) return 'left';
	if (state === 'closed' && phase === 'closed' && opens) return 'opens';
	return state === 'waiting' && phase === 'prequeue' ? 'prequeue' : views[state] ? state : 'waiting';
}

// The server's time: an answer that nginx kept for a moment is late, none is early.
let clock = -Infinity;
const now = () => clock + performance.now();

// Days, hours, minutes, seconds until the opening.
const parts = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];
for (const [unit] of parts) {
	const part = $('left').appendChild(document.createElement('span'));
	const named = new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'short' }).formatToParts(11);
	part.append(document.createElement('b'), named.find(each => each.type === 'unit').value);
}
function tick() {
	clearTimeout(ticker);
	const rest = Date.parse(data.opens_at) - now();
	let seconds = Math.max(0, Math.ceil(rest / 1000));
	parts.forEach(([, length], i) => {
		const part = $('left').children[i], count = Math.floor(seconds / length);
		part.firstChild.textContent = String(count).padStart(2, 0);
		if (!i) part.hidden = !count;
		seconds %= length;
	});
	if (rest > 0 && !$('clock').hidden) ticker = setTimeout(tick, rest % 1000 + 10);
}

// When it opens, in the visitor's own time zone; returns how the heading and the text name it.
function date(view) {
	const opens = new Date(data.opens_at), begins = new Date(data.prequeue_from);
	const time = { timeStyle: 'short' }, long = { dateStyle: 'long', ...time };
	const say = (when, how) => when.toLocaleString(locale, how);
	const same = (one, other) => one.toDateString() === new Date(other).toDateString();
	const lines = [say(opens, {
		weekday: 'long', day: 'numeric', month: 'long', year: 'numeric',
		hour: 'numeric', minute: '2-digit', timeZoneName: 'short'
	})];
	if (view === 'opens' && data.prequeue_from) lines.push(texts.pre_from.replace('{t}', say(begins, same(begins, opens) ? time : long)));
	put('when', lines.join('\n'));
	if (same(opens, now())) return ['opens_at', say(opens, time)];
	return ['opens_on', say(opens, view === 'opens' ? { day: 'numeric', month: 'long' } : long)];
}

function render(restored) {
	if (!data) return;
	const { state, position, position_above: above } = data;
	const place = above ? number(above) + '+' : number(position);
	const view = viewed(data);
	const bar = document.querySelector('progress');
	root.dataset.state = state;
	root.dataset.phase = data.phase;
	put('position', place);
	put('waiting', number(data.waiting));
	put('message', data.message || '');
	put('updated', new Date(Date.parse(data.updated_at) || Date.now()).toLocaleTimeString(locale));
	$('paused').hidden = !data.paused;
	if (position) {
		const first = Math.max(recall(data.joined_at).first || 0, position);
		keep(data.joined_at, { first });
		bar.max = first + 1;
		bar.value = bar.max - position;
	}
	if (state === 'admitted') bar.value = bar.max;
	$('lane').hidden = !position && state !== 'admitted';
	$('clock').hidden = view !== 'opens' && view !== 'prequeue';
	tick();
	if (!texts) return;
	const [named, opens] = $('clock').hidden ? [] : date(view);
	const [heading, intro = ''] = views[view].map(key => texts[key === 'opens_on' ? named : key].replace('{t}', opens));
	put('heading', heading);
	put('intro', intro);
	put('line', data.line ? texts.line.replace('{n}', data.line) : '');
	put('wait', words(data));
	document.title = `${state === 'waiting' && place ? `(${place}) ` : ''}${heading} – ${site}`;
	root.classList.remove('load');
	speak(view, heading, restored);
}

// For screen readers: only what matters, and a new position at most every 30 s.
const said = { view: 'waiting', at: 0 };
function speak(view, heading, restored) {
	const { position_above: above, message, paused } = data;
	const p = above ? above + 1 : data.position;
	const updates = restored ? [texts.online] : [];
	if (view !== said.view) updates.push(heading);
	if (message && message !== said.message) updates.push(message);
	if (paused && !said.paused) updates.push(texts.paused);
	if (p && p !== said.p && (Date.now() - said.at >= 3e4 || p === 1 || (p <= 10 && said.p > 10))) {
		updates.push(p === 1 ? texts.next : `${texts.position}: ${above ? texts.above.replace('{n}', number(above)) : number(p)}`);
		said.p = p;
		said.at = Date.now();
	}
	Object.assign(said, { view, message, paused });
	if (updates.length) put('live', updates.join('\n'));
}

// A class that was granted with the address, here or at the end of the way.
const [granted] = /[?&]waitroom_grant=[\w.-]+/.exec(location.search + '&' + next) || [''];
const grant = granted.replace('&', '?');

let timer, due = Infinity, action, current, failures = 0, tried = false;

function plan(seconds, what) {
	const ms = Math.min(seconds, 86400) * 1000;
	clearTimeout(timer);
	timer = setTimeout(call, ms, what);
	due = Date.now() + ms;
	action = what;
}

async function call(what) {
	clearTimeout(timer);
	due = Infinity;
	if (current) current.abort();
	const mine = current = new AbortController();
	const limit = setTimeout(() => mine.abort(), 20000);
	let after = 0;
	loadTexts();
	try {
		const response = await fetch(api + what + (what === 'join' ? grant : ''), {
			method: what === 'status' ? 'GET' : 'POST', headers: { Accept: 'application/json' },
			cache: 'no-store', signal: mine.signal
		});
		after = Number(response.headers.get('Retry-After')) || 0;
		const answer = response.ok && await response.json();
		if (current !== mine) return;
		if (answer) receive(answer, what);
		else if (response.status === 429) plan((after || 10) * random(1, 1.05), what);
		else throw response;
	} catch (e) {
		if (current !== mine) return;
		// The numbers stay; try again later and later, each browser at its own moment.
		$('offline').hidden = false;
		if (!failures++) put('live', $('offline').textContent);
		plan(Math.max(after, random(2, Math.min(60, 2 ** (failures + 1)))), what);
	} finally {
		clearTimeout(limit);
	}
}

function receive(answer, what) {
	const { state, refresh_after_seconds: seconds } = answer;
	const restored = failures > 0;
	const begins = Date.parse(answer.prequeue_from || answer.opens_at);
	clock = Math.max(clock, Date.parse(answer.updated_at) - performance.now());
	failures = 0;
	$('offline').hidden = true;
	if (what === 'leave') {
		left = true;
	} else if (state === 'admitted') {
		enter();
	} else if (state === 'not_queued') {
		if (!tried) { // no place yet: take one
			tried = true;
			return plan(random(0, seconds || 1), 'join');
		}
	} else {
		tried = state === 'waiting';
		const opens = viewed(answer) === 'opens'; // the server has spread those already
		const joins = state === 'full' || opens && begins - now() <= seconds * 1000;
		plan((seconds || 5) * (opens ? 1 : random(1, 1.05)), joins ? 'join' : 'status');
	}
	data = answer;
	render(restored);
}

// A site that keeps sending its visitor back here is asked ever less often.
function enter() {
	let { count = 0, at = 0 } = recall('enter');
	count = Date.now() - at < 15000 ? count + 1 : 1;
	let delay = count > 3 ? random(.5, 1) * Math.min(60, 2 ** (count - 1)) : .5;
	if (!lasting && performance.getEntriesByType('navigation')[0].type === 'reload') delay = random(4, 8);
	setTimeout(() => {
		keep('enter', { count, at: Date.now() });
		if (location.pathname.startsWith('/_waitroom/')) {
			const safe = /^\/(?![/\\])[^\0-\x1f\x7f]*$/.test(next);
			location.replace((safe ? next : '/') + location.hash);
		} else if (/^(GET|HEAD)?$/.test(method)) {
			location.reload();
		} else {
			location.replace(location.href.split('#')[0]); // with the fragment nothing would load
		}
	}, delay * 1000);
}

for (const what of ['leave', 'join']) {
	$(what).addEventListener('click', event => {
		event.preventDefault();
		left = false;
		tried = true;
		call(what).then(() => $('heading').focus());
	});
}
document.addEventListener('visibilitychange', () => { if (!document.hidden && Date.now() >= due) call(action); });
addEventListener('online', () => { if (failures) plan(random(0, 2), action); });
addEventListener('pageshow', event => { if (event.persisted && !left) call('status'); });
call('status');
}
