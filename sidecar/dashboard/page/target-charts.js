// The charts of one target: what became of its jobs and calls, and how long they took.

import { request } from './acts.js';
import { aMinute, Charts, STEPS } from './chart.js';
import { fine, rate } from './draw.js';

const HOUR = 3600000,
  LONGEST = 168;
const short = seconds =>
  seconds != null && seconds < 1
    ? `${Math.round(seconds * 1000)} ms`
    : fine(seconds);
const CHARTS = [
  {
    title: 'Jobs that ended',
    unit: 'a minute',
    text: rate,
    steps: STEPS.parts,
    series: [
      { name: 'Completed', kind: 'line', of: aMinute('completed') },
      { name: 'Failed', kind: 'second', of: aMinute('failed') },
      { name: 'Cancelled or expired', kind: 'limit', of: aMinute('other') },
    ],
  },
  {
    title: 'Calls',
    unit: 'a minute, every attempt',
    text: rate,
    steps: STEPS.parts,
    series: [
      { name: 'Succeeded', kind: 'line', of: aMinute('calls_completed') },
      { name: 'Failed', kind: 'second', of: aMinute('calls_failed') },
      {
        name: 'To be tried again',
        kind: 'limit',
        of: aMinute('calls_retried'),
      },
    ],
  },
  {
    title: 'Latency',
    unit: 'mean of the jobs that ended',
    text: short,
    steps: STEPS.parts,
    series: [
      { name: 'The call took', kind: 'line', of: row => row.mean_seconds },
      {
        name: 'Waited before',
        kind: 'second',
        of: row => row.mean_wait_seconds,
      },
    ],
  },
];
const RANGES = [
  ['1 h', HOUR],
  ['6 h', 6 * HOUR],
  ['24 h', 24 * HOUR],
  ['7 d', 7 * 24 * HOUR],
];

export class TargetCharts extends Charts {
  constructor(address) {
    super(CHARTS, from => this.read((Date.now() - from) / HOUR), RANGES);
    this.address = address;
  }

  // Loads the last hour, and charts it.
  async collect() {
    this.update({ rows: await this.read(1), marks: [], event: null });
  }

  // Returns a row for each step that is over.
  async read(hours) {
    const whole = Math.min(LONGEST, Math.max(1, Math.ceil(hours - 0.01)));
    const { step_seconds: seconds, steps } = await request(
      'GET',
      `${this.address}/history?hours=${whole}`,
    );
    return steps.slice(0, -1).map(step => {
      const from_ms = Date.parse(step.at);
      return { ...step, from_ms, ends_ms: from_ms + seconds * 1000 };
    });
  }

  // The steps follow one another without gaps, whatever their length.
  isGap() {
    return false;
  }
}
