// The section of targets: asks for them while it can be seen, and says so when nobody knows.

import { request } from './acts.js';
import { clock, make, number, put } from './draw.js';
import { Target } from './target.js';

const SEEN_MS = 2000, UNSEEN_MS = 10000;

const section = document.getElementById('targets');
const list = section.querySelector('.cards');
const note = section.querySelector('.away-note');
const index = document.getElementById('index').lastElementChild;
const cards = new Map();
let timer, isWatched = false, isInView = false, awaySince = 0;

// From now on. Without targets the section stays hidden, until there is one.
export function watchTargets() {
	if (isWatched) return;
	isWatched = true;
	new IntersectionObserver(([{ isIntersecting }]) => {
		if (isIntersecting && !isInView) soon(0);
		isInView = isIntersecting;
	}, { rootMargin: '200px' }).observe(section);
	document.addEventListener('visibilitychange', () => { if (!document.hidden) soon(0); });
	soon(0);
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
			const open = isInView ? [...cards.values()] : [];
			await Promise.all(open.map(card => card.collect()));
			awaySince = 0;
		} catch (error) {
			awaySince ||= began;
			const old = cards.size ? `The figures below are old, since ${clock(awaySince)}. ` : '';
			put(note, `${error.title ?? error.message}. ${old}Trying again …`);
			section.hidden = false;
		}
		note.hidden = !awaySince;
		section.classList.toggle('away', Boolean(awaySince));
	}
	soon(isInView ? SEEN_MS : UNSEEN_MS);
}

function show(targets, began) {
	for (const [name, card] of cards) {
		if (targets.some(each => each.name === name)) continue;
		if (card.root.contains(document.activeElement)) section.focus({ preventScroll: true });
		card.root.remove();
		card.entry.remove();
		cards.delete(name);
	}
	for (const state of targets) {
		let card = cards.get(state.name);
		if (!card) {
			cards.set(state.name, card = new Target(state.name, { gone, refresh: () => soon(0) }));
			list.append(card.root);
			index.append(card.entry = entry(state.name));
		}
		card.now(state, began);
		const [, numbers, mode] = card.entry.firstElementChild.children;
		put(numbers, `${number(state.waiting + state.later)} pending, ${number(state.running)} of ${number(state.settings.concurrency)} processing`);
		put(mode, card.mode.word.toLowerCase());
		card.entry.dataset.kind = card.mode.kind;
	}
	section.hidden = index.hidden = !targets.length;
}

function entry(name) {
	const item = make('li'), link = make('a');
	link.href = `#target-${name}`;
	link.append(make('strong', '', name), make('span'), make('span'));
	item.append(link);
	return item;
}

// A target that the file does not have went back to it.
function gone(name) {
	put(section.querySelector('output'), `✓ ${name} is gone: the file does not have it.`);
	soon(0);
}
