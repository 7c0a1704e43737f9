// One room's card: built once from the template, brought up to date with every event.

import { ask, call, session, tell } from './acts.js';
import { Curve, clock, date, duration, make, moment, number, put, rate } from './draw.js';
import { MODES, shown } from './modes.js';
import { askMove } from './move.js';

const AWAY = {
	bounded: 'newcomers are let in by each replica within the slots that were free',
	admit: 'everybody is let in', wait: 'nobody new is let in'
};
const VISITOR = /^([\w-]{22}|[0-9a-tv-z]{4}-?[0-9a-tv-z]{4})$/i;
const words = value => value == null ? 'none' : typeof value === 'string' ? `“${value}”` : typeof value === 'number' ? number(value) : String(value);

export class Room {
	constructor(name) {
		this.name = name;
		this.root = document.getElementById('t-room').content.firstElementChild.cloneNode(true);
		this.root.id = `room-${name}`;
		this.$ = selector => this.root.querySelector(selector);
		const title = this.$('h1');
		title.textContent = name;
		title.id = `title-${name}`;
		this.root.setAttribute('aria-labelledby', title.id);
		this.$('.to-wall').href = `/dashboard/wall?room=${encodeURIComponent(name)}`;
		this.$('.to-look').href = `#/look/${encodeURIComponent(name)}`;
		this.curves = [
			new Curve('Waiting', 'waiting'), new Curve('Inside, and the cap', 'active', { limit: 'cap' }),
			new Curve('Let in, each minute', 'admitted', { kind: 'bars' }), new Curve('Gave up, each minute', 'abandoned', { kind: 'bars' })
		];
		this.$('.curves .grid').append(...this.curves.map(curve => curve.element));
		this.rows = new Map();
		this.controls();
	}

	// The numbers of this second.
	now(state) {
		this.state = state;
		const { settings, a_minute: minute } = state;
		const figures = {
			waiting: number(state.waiting), active: number(state.active), cap: number(settings.total_active_users),
			wait: duration(state.wait_seconds), provisional: number(state.provisional),
			joined: rate(minute?.joined), admitted: rate(minute?.admitted), abandoned: rate(minute?.abandoned)
		};
		for (const [name, text] of Object.entries(figures)) put(this.$(`[data-f=${name}]`), text);
		const bar = this.$('progress');
		bar.max = Math.max(settings.total_active_users, state.active || 0, 1);
		bar.value = state.active || 0;
		bar.setAttribute('aria-label', `${figures.active} of ${figures.cap} inside`);
		const [word, meaning] = MODES[shown(state)];
		put(this.$('.mode'), word);
		this.$('.mode').dataset.kind = shown(state);
		put(this.$('.meaning'), meaning);
		put(this.$('.health'), state.away ? 'The store does not answer' : `The store answers, to ${number(state.replicas)} ${state.replicas === 1 ? 'replica' : 'replicas'}`);
		this.root.classList.toggle('away', state.away);
		this.notices(state);
		this.event(state);
		this.lines(state);
		this.changed(state);
		for (const name of ['total_active_users', 'new_users_per_minute', 'message']) this.follow(name);
		const { queue_all: paused, suspended } = settings;
		this.can('pause', !paused);
		this.can('resume', paused || state.mode === 'draining');
		this.can('drain', paused || settings.max_waiting !== 0);
		this.can('suspend', !suspended);
		this.can('unsuspend', suspended);
	}

	// What changes more slowly: curves, waits, the head of the queue.
	collected({ minutes, waits, line }) {
		for (const curve of this.curves) curve.draw(minutes);
		put(this.$('[data-f=half]'), duration(waits.half));
		put(this.$('[data-f=most]'), duration(waits.most));
		this.line(line);
	}

	notices(state) {
		const notices = [];
		if (state.away) notices.push(`The store does not answer${state.as_of_ms ? ` since ${clock(state.as_of_ms)}` : ''}. The figures are old. Those inside stay; ${AWAY[state.on_store_failure]}.`);
		else if (state.recovery_stage === 2) notices.push(`The store was emptied: places are coming back. Nobody is called until ${clock(state.recovers_until_ms)}.`);
		else if (state.recovery_stage === 1) notices.push('The store was emptied: places are coming back. No positions are shown for a moment.');
		if (state.shield_until_ms > state.now_ms) notices.push('The shield is up: newcomers come too fast, and join from the page.');
		const over = state.active - state.settings.total_active_users;
		if (!state.away && over > 0) notices.push(`${number(over)} more than the cap are inside: they stay, and nobody is called until there is room.`);
		if (state.settings.total_active_users === 0) notices.push('The cap is 0: nobody is let in.');
		const list = this.$('.notices');
		if ([...list.children].map(item => item.textContent).join() === notices.join()) return;
		list.replaceChildren(...notices.map(text => make('li', '', text)));
	}

	// What the room's events say, in this browser's time.
	event({ phase, event, coming }) {
		const said = [];
		if (event && phase === 'prequeue') said.push(`Event ${event.name} opens on ${date(event.opens_at)}.`);
		if (event && phase === 'open') {
			said.push(`Event ${event.name} is open${event.closes_at ? ` until ${date(event.closes_at)}` : ''}.`);
			if (event.replaces.length) said.push(`It sets ${event.replaces.join(', ')}.`);
		}
		if (coming) {
			const before = coming.prequeue_from ? `pre-queue from ${date(coming.prequeue_from)}, ` : '';
			said.push(`Next event: ${coming.name}, ${before}opens on ${date(coming.opens_at)}.`);
		}
		const line = this.$('.event');
		line.hidden = !said.length;
		put(line, said.join(' '));
	}

	lines({ lines = [], waiting }) {
		const list = this.$('.lines');
		const drawn = waiting - lines.reduce((sum, each) => sum + each.waiting, 0);
		const all = lines.map(each => [each.line, each.waiting, `wait ${duration(each.wait_seconds)}`]);
		if (drawn > 0) all.unshift(['drawn', drawn, 'before all sub-queues']);
		list.hidden = !lines.length;
		const key = JSON.stringify(all);
		if (list.dataset.key === key) return;
		list.dataset.key = key;
		list.replaceChildren(...all.map(([name, people, wait]) => {
			const box = make('div');
			box.append(make('dt', '', name), make('dd', '', number(people)), make('dd', 'hint', wait));
			return box;
		}));
	}

	changed({ changed = {}, file }) {
		const lines = Object.entries(changed).map(([name, value]) => `${name}: ${words(value)} (file: ${words(file[name])})`);
		const list = this.$('.changed');
		if (!lines.length) lines.push('Nothing: all is as in the settings file.');
		if ([...list.children].map(item => item.textContent).join() === lines.join()) return;
		list.replaceChildren(...lines.map(text => make('li', '', text)));
	}

	// A field shows what is in force, unless somebody is typing in it.
	follow(name) {
		const control = this.$(`[data-control=${name}]`);
		const field = control.querySelector('input, textarea');
		const { settings, file, changed = {} } = this.state;
		const value = String(settings[name] ?? '');
		if (field.value === (field.dataset.known ?? '') && field.value !== value) field.value = value;
		field.dataset.known = value;
		const back = control.querySelector('.back');
		const isOffered = name in changed && (name !== 'message' || file.message != null);
		back.hidden = !isOffered && document.activeElement !== back;
		put(back, `Reset to configured value: ${words(file[name])}`);
	}

	can(what, is) {
		for (const button of this.root.querySelectorAll(`[data-do=${what}]`)) button.setAttribute('aria-disabled', String(!is));
	}

	async set(changes) {
		return call('PATCH', `/${this.name}`, changes);
	}

	controls() {
		const set = name => {
			const control = this.$(`[data-control=${name}]`);
			const field = control.querySelector('input, textarea');
			const output = control.querySelector('output');
			const send = value => tell(output, async () => {
				const now = (await this.set({ [name]: value })).settings[name];
				field.value = field.dataset.known = String(now ?? '');
				const { phase, event } = this.state;
				if (phase === 'open' && event?.replaces.includes(name)) return `While ${event.name} is open, it is ${words(now)} all the same.`;
				return `It is ${words(now)} now.`;
			});
			control.addEventListener('submit', event => {
				event.preventDefault();
				const text = field.value.trim();
				send(field.type === 'number' ? text === '' ? null : Number(text) : text || this.nothing(name));
			});
			control.querySelector('.back').addEventListener('click', () => send(null));
			control.querySelector('[data-do=clear]')?.addEventListener('click', () => send(this.nothing(name)));
		};
		['total_active_users', 'new_users_per_minute', 'message'].forEach(set);

		const act = (what, how) => {
			for (const button of this.root.querySelectorAll(`[data-do=${what}]`)) {
				const output = button.closest('.control').querySelector('output');
				button.addEventListener('click', () => {
					if (button.getAttribute('aria-disabled') !== 'true') tell(output, how);
				});
			}
		};
		const post = async what => MODES[(await call('POST', `/${this.name}/${what}`)).mode].join(': ');
		act('pause', () => post('pause'));
		act('resume', () => post('resume'));
		act('drain', async () => await ask({
			title: `Drain ${this.name}?`, go: 'Drain',
			text: 'Newcomers see that the room is full, as long as anybody waits. Those in the queue are let in.'
		}) && post('drain'));
		const suspended = async value => MODES[(await this.set({ suspended: value })).mode].join(': ');
		act('suspend', async () => await ask({
			title: `Suspend ${this.name}?`, go: 'Suspend', danger: true,
			text: `Everybody passes, uncounted: those ${number(this.state.waiting)} in the queue, and all who come.`
		}) && suspended(true));
		act('unsuspend', () => suspended(this.state.file.suspended ? false : null));
		act('reset', async () => await ask({
			title: `Reset the queue of ${this.name}?`, go: 'Reset the queue', danger: true,
			text: `Everybody in the queue, ${number(this.state.waiting)} now, loses the place. It cannot be undone.`,
			label: `Type the room's name, ${this.name}`,
			check: typed => typed === this.name ? '' : `That is not ${this.name}.`
		}) && `${number((await call('POST', `/${this.name}/reset`)).removed)} places removed.`);

		const look = this.$('[data-control=look]');
		look.addEventListener('submit', event => {
			event.preventDefault();
			const visitor = look.querySelector('input').value.trim();
			tell(look.querySelector('output'), () => this.look(visitor, look));
		});
	}

	// No message; where the file has one, an empty one stands for that.
	nothing(name) {
		return this.state.file[name] == null ? null : '';
	}

	async look(visitor, look) {
		const buttons = look.querySelector('.found');
		const past = look.querySelector('.past');
		buttons.hidden = true;
		past.replaceChildren();
		if (!VISITOR.test(visitor)) throw new Error('Write a number such as 7K2Q-9XDM, or an id: 22 letters, digits, - and _.');
		// First: of a number that nobody here has any more, the history may know.
		if (session.history) past.replaceChildren(...await this.past(visitor));
		const found = await call('GET', `/${this.name}/visitors/${visitor}`);
		const said = {
			waiting: found.position == null ? 'In the pre-queue: the place is drawn at the opening.'
				: found.line ? `In sub-queue ${found.line}, at place ${number(found.line_position)}; ${number(found.position)} among all.`
				: `In the queue, at place ${number(found.position)}.`,
			called: `Called, and not here yet: until ${moment(found.ends_at_ms)}.`,
			inside: `Inside since ${moment(found.started_at_ms)}, until ${moment(found.ends_at_ms)} if nothing renews it.`,
			revoked: `Left or was released at ${moment(found.revoked_at_ms)}.`,
			unknown: 'Unknown: neither in the queue nor inside.'
		}[found.state];
		const waits = found.state === 'waiting' && found.position != null;
		if (found.state === 'waiting' || found.state === 'inside' || found.state === 'called') {
			buttons.hidden = false;
			buttons.replaceChildren(...this.buttons(found.visitor, found.number, look.querySelector('output'), waits));
		}
		return said;
	}

	// What happened to somebody, where a history is kept and knows them.
	async past(visitor) {
		try {
			const { events } = await call('GET', `/${this.name}/visitors/${visitor}/history`);
			return events.map(({ at, kind, why, position, by, detail }) => {
				const what = [kind, why, position && `place ${number(Number(position))}`, by && `by ${by}`, detail];
				return make('li', '', `${moment(Date.parse(at))}  ${what.filter(Boolean).join(', ')}`);
			});
		} catch (error) {
			return [];
		}
	}

	// What can be done with one visitor, who is shown by their number.
	buttons(visitor, short, output, waits) {
		const button = (text, how) => {
			const made = make('button', '', text);
			made.type = 'button';
			made.setAttribute('aria-label', `${text.replace(' …', '')}: ${short}`);
			made.addEventListener('click', () => tell(output, how));
			return made;
		};
		const path = `/${this.name}/visitors/${visitor}`;
		const release = button('Release …', async () => await ask({
			title: 'Release this visitor?', go: 'Release', danger: true,
			text: `${short} loses the place or the session in ${this.name}.`
		}) && await call('POST', `${path}/release`) && `${short} is released.`);
		if (!waits) return [release];
		return [
			button('Move …', async () => {
				const to = await askMove(short, this.state.classes);
				if (!to) return null;
				const { position } = await call('POST', `${path}/move`, to);
				return `${short} is at place ${number(position)} now${to.class ? `, as ${to.class}` : ''}.`;
			}),
			release
		];
	}

	// Rows stay with their visitors, so that a row does not become another's under a finger. The
	// place is that in the visitor's sub-queue.
	line(people) {
		const body = this.$('.line tbody');
		const visitors = people.map(([visitor]) => visitor);
		for (const [visitor, row] of this.rows) {
			if (visitors.includes(visitor)) continue;
			if (row.contains(document.activeElement)) this.root.focus({ preventScroll: true });
			row.remove();
			this.rows.delete(visitor);
		}
		let at = body.firstElementChild;
		const places = new Map();
		for (const [visitor, line, short] of people) {
			places.set(line, (places.get(line) || 0) + 1);
			let row = this.rows.get(visitor);
			if (!row) this.rows.set(visitor, row = this.row(visitor, short));
			put(row.firstElementChild, String(places.get(line)));
			put(row.querySelector('.hint'), line || (this.state?.lines?.length ? 'drawn' : ''));
			if (row === at) at = at.nextElementSibling;
			else body.insertBefore(row, at);
		}
		this.$('.line table').hidden = !visitors.length;
		this.$('.line .nobody').hidden = visitors.length > 0;
		put(this.$('.line .nobody'), this.state?.phase === 'prequeue' ? 'Nobody has a place before the opening, when they are drawn.' : 'The queue is empty.');
	}

	row(visitor, short) {
		const row = make('tr'), who = make('td'), what = make('td'), buttons = make('div', 'row');
		const code = make('code', '', short);
		code.title = visitor;
		who.append(code, ' ', make('span', 'hint'));
		buttons.append(...this.buttons(visitor, short, this.$('.line output'), true));
		what.append(buttons);
		row.append(make('th'), who, what);
		row.firstElementChild.scope = 'row';
		return row;
	}
}
