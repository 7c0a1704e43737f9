// Charts over time as SVG, of our own: nothing to install, and nothing that the CSP would refuse.

import { svg } from './draw.js';

// The points of each stretch without a gap: null is one.
function stretches(points) {
	const found = [[]];
	for (const point of points) {
		if (point) found.at(-1).push(point);
		else if (found.at(-1).length) found.push([]);
	}
	return found.filter(each => each.length);
}

// A line for a row of a table, 80 by 20 pixels, in the colour of the text; null is a gap. What it
// says has to stand beside it in words.
export function sparkline(values) {
	const width = 80, height = 20, inset = 2;
	const most = Math.max(...values, 1);
	const x = i => inset + (width - 2 * inset) * i / Math.max(values.length - 1, 1);
	const y = value => height - inset - (height - 2 * inset) * value / most;
	const picture = svg('svg', { class: 'sparkline', width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });
	for (const points of stretches(values.map((value, i) => value == null ? null : `${x(i).toFixed(1)},${y(value).toFixed(1)}`))) {
		// A lone point is a line to itself, of which the round ends are seen.
		picture.append(svg('polyline', { points: [...points, points.at(-1)].join(' '), fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-linejoin': 'round', 'stroke-linecap': 'round' }));
	}
	return picture;
}
