// The first view: all rooms at a glance, and the way to each.

import { make, number, put } from './draw.js';
import { shown } from './modes.js';
import { register } from './views.js';

const list = document.getElementById('index');

export function now(states) {
	states.forEach((each, i) => {
		let item = list.children[i];
		if (!item) {
			item = make('li');
			const link = make('a');
			link.href = `#/rooms/${encodeURIComponent(each.room)}`;
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

register({
	path: '', title: 'Overview', root: document.getElementById('overview'),
	open: () => null, close: () => { /* it draws what comes anyway */ }
});
