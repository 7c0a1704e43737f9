// Figures in words, and curves as SVG.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const NONE = '–';

export const number = n => n == null ? NONE : whole.format(n);
export const rate = n => n == null ? NONE : (n < 10 ? tenths : whole).format(n);
export const clock = ms => new Date(ms).toLocaleTimeString('en-GB');

export function duration(seconds) {
	if (seconds == null) return NONE;
	if (seconds < 100) return `${Math.round(seconds)} s`;
	const minutes = Math.round(seconds / 60);
	if (minutes < 100) return `${minutes} min`;
	return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// The day where it is not today.
export function moment(ms) {
	const then = new Date(ms);
	const day = then.toDateString() === new Date().toDateString() ? '' : `${then.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} `;
	return day + clock(ms);
}

// The day, and the time to the minute; the year where it is another.
export function date(ms) {
	const then = new Date(ms);
	const year = then.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' };
	const day = then.toLocaleDateString('en-GB', { weekday: 'short', day: 'numeric', month: 'short', ...year });
	return `${day}, ${clock(ms).slice(0, 5)}`;
}

export function put(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

export function make(name, className = '', text = '') {
	const element = document.createElement(name);
	if (className) element.className = className;
	if (text) element.textContent = text;
	return element;
}

export function svg(name, attributes) {
	const element = document.createElementNS('http://www.w3.org/2000/svg', name);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	return element;
}

// Seconds to a figure that says something: 0.042 s, 1.3 s, 12 s, 4 min.
export function fine(seconds) {
	if (seconds == null) return NONE;
	if (seconds >= 10) return duration(seconds);
	return `${seconds >= 1 ? seconds.toFixed(1) : seconds.toFixed(seconds >= .1 ? 2 : 3)} s`;
}

const WIDTH = 240, HEIGHT = 60, MINUTES = 60, MINUTE_MS = 60000;

// One curve of the last hour: `kind` is area or bars; `limit` names a second column, drawn as a
// dashed line. Built once, drawn anew with each event.
export class Curve {
	constructor(title, column, { kind = 'area', limit = null } = {}) {
		Object.assign(this, { title, column, kind, limit });
		this.element = make('figure', `curve ${kind} ${column}`);
		const caption = make('figcaption');
		this.value = make('span', 'value');
		caption.append(make('span', '', title), this.value);
		this.picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' });
		const axis = make('p', 'axis');
		this.top = make('span');
		axis.append(make('span', '', '60 min ago'), this.top, make('span', '', 'now'));
		this.element.append(caption, this.picture, axis);
		this.picture.addEventListener('pointermove', event => this.point(event));
		this.picture.addEventListener('pointerleave', () => { this.at = null; this.say(); });
	}

	draw(minutes) {
		this.ends = minutes.ends_ms;
		this.values = minutes[this.column];
		this.limits = this.limit ? minutes[this.limit] : [];
		this.until = this.ends.at(-1) ?? 0;
		const most = Math.max(...this.values, ...this.limits, 1);
		const x = ms => WIDTH * (1 - (this.until - ms) / (MINUTES * MINUTE_MS));
		const y = value => HEIGHT - 1 - (HEIGHT - 3) * value / most;
		const points = this.ends.map((ms, i) => `${x(ms).toFixed(1)},${y(this.values[i]).toFixed(1)}`);
		const shapes = [];
		if (this.kind === 'bars') {
			const width = WIDTH / MINUTES - 1;
			this.ends.forEach((ms, i) => {
				if (this.values[i]) shapes.push(svg('rect', { class: 'fill', x: (x(ms) - width).toFixed(1), y: y(this.values[i]).toFixed(1), width, height: (HEIGHT - y(this.values[i])).toFixed(1) }));
			});
		} else if (points.length) {
			const first = x(this.ends[0]).toFixed(1);
			shapes.push(svg('polygon', { class: 'fill', points: `${first},${HEIGHT} ${points.join(' ')} ${WIDTH},${HEIGHT}` }));
			shapes.push(svg('polyline', { class: 'line', points: points.join(' ') }));
		}
		if (this.limits.length) {
			shapes.push(svg('polyline', { class: 'limit', points: this.ends.map((ms, i) => `${x(ms).toFixed(1)},${y(this.limits[i]).toFixed(1)}`).join(' ') }));
		}
		this.picture.replaceChildren(...shapes);
		this.most = Math.max(...this.values, 0);
		put(this.top, `most ${number(this.most)}`);
		this.say();
	}

	point(event) {
		const { left, width } = this.picture.getBoundingClientRect();
		const ms = this.until - (1 - (event.clientX - left) / width) * MINUTES * MINUTE_MS;
		const near = (best, end, i) => Math.abs(end - ms) < Math.abs(this.ends[best] - ms) ? i : best;
		this.at = this.ends?.length ? this.ends.reduce(near, 0) : null;
		this.say();
	}

	say() {
		if (!this.values) return;
		const last = this.values.length - 1;
		const i = this.at == null ? last : Math.min(this.at, last);
		put(this.value, i < 0 ? 'begins after two minutes' : this.at == null ? number(this.values[i]) : `${clock(this.ends[i]).slice(0, 5)}  ${number(this.values[i])}`);
		this.picture.setAttribute('aria-label', last < 0 ? `${this.title}: nothing yet` : `${this.title}, last hour: most ${number(this.most)}, last minute ${number(this.values[last])}`);
	}
}
