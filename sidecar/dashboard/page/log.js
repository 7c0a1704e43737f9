// The view of what operators did: #/log.

import { make, moment, number } from './draw.js';
import { isOpen, register } from './views.js';

const SHOWN = 100;

const list = document.getElementById('log');
const logs = new Map();

export function collected({ room, log }) {
	logs.set(room, log);
	if (isOpen('log')) show();
}

function show() {
	const all = [...logs].flatMap(([room, acts]) => acts.map(act => ({ ...act, room })));
	all.sort((a, b) => b.at - a.at);
	const lines = all.slice(0, SHOWN).map(act => [moment(act.at), act.room, act.by, did(act)]);
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

register({
	path: 'log', title: 'Log', root: document.getElementById('acts'),
	open: () => show(), close: () => { /* nothing of its own */ }
});
