// A bar chart of a target's completed, otherwise ended, and failed jobs over time.

import { clock, fine, make, moment, number, put, svg } from './draw.js';

const WIDTH = 240,
  HEIGHT = 60;
const KINDS = [
  ['completed', 'completed'],
  ['other', 'cancelled or expired'],
  ['failed', 'failed'],
];

const said = counts =>
  KINDS.filter(([kind]) => counts[kind] || kind !== 'other')
    .map(([kind, words]) => `${number(counts[kind])} ${words}`)
    .join(', ');

export class Stacks {
  constructor() {
    this.element = make('figure', 'curve stacks');
    const caption = make('figcaption'),
      legend = make('span', 'legend');
    for (const [kind, words] of KINDS) legend.append(make('span', kind, words));
    this.value = make('span', 'value');
    caption.append(legend, this.value);
    this.picture = svg('svg', {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: 'none',
      role: 'img',
    });
    const axis = make('p', 'axis');
    this.from = make('span');
    this.top = make('span');
    axis.append(this.from, this.top, make('span', '', 'now'));
    this.element.append(caption, this.picture, axis);
    this.picture.addEventListener('pointermove', event => this.point(event));
    this.picture.addEventListener('pointerleave', () => {
      this.at = null;
      this.say();
    });
  }

  // A step in which no job ended is left out.
  draw({ step_seconds: seconds, steps }, hours) {
    this.step = seconds * 1000;
    this.span = hours * 3600000;
    this.steps = steps.map(step => ({ ...step, ms: Date.parse(step.at) }));
    this.until = Math.max(
      Date.now(),
      ...this.steps.map(({ ms }) => ms + this.step),
    );
    const all = step => KINDS.reduce((sum, [kind]) => sum + step[kind], 0);
    const most = Math.max(...this.steps.map(all), 1);
    const width = Math.max((WIDTH * this.step) / this.span - 1, 1);
    const shapes = [];
    for (const step of this.steps) {
      let y = HEIGHT;
      const x = WIDTH * (1 - (this.until - step.ms) / this.span);
      for (const [kind] of KINDS) {
        const height = ((HEIGHT - 2) * step[kind]) / most;
        y -= height;
        if (height)
          shapes.push(
            svg('rect', {
              class: kind,
              x: x.toFixed(1),
              y: y.toFixed(2),
              width: width.toFixed(1),
              height: height.toFixed(2),
            }),
          );
      }
    }
    this.picture.replaceChildren(...shapes);
    put(this.from, moment(this.until - this.span).slice(0, -3));
    put(this.top, `most ${number(steps.length ? most : 0)}`);
    this.sum = Object.fromEntries(
      KINDS.map(([kind]) => [
        kind,
        steps.reduce((sum, step) => sum + step[kind], 0),
      ]),
    );
    this.picture.setAttribute(
      'aria-label',
      `Jobs that ended: ${said(this.sum)}`,
    );
    this.say();
  }

  point(event) {
    if (!this.steps) return;
    const { left, width } = this.picture.getBoundingClientRect();
    const ms = this.until - (1 - (event.clientX - left) / width) * this.span;
    this.at =
      this.steps.find(step => step.ms <= ms && ms < step.ms + this.step) ||
      null;
    this.say();
  }

  say() {
    const { at } = this;
    const more =
      at?.mean_seconds == null
        ? ''
        : `; waited ${fine(at.mean_wait_seconds)}, took ${fine(at.mean_seconds)}`;
    put(
      this.value,
      at ? `${clock(at.ms).slice(0, 5)}  ${said(at)}${more}` : said(this.sum),
    );
  }
}
