// The charts of one room, with their marks.

import { call } from './acts.js';
import { Charts, STEPS } from './chart.js';
import { duration, rate } from './draw.js';

const DAY = 86400000,
  BEFORE = 900000;
const aMinute = name => row =>
  (row[name] * 60000) / (row.ends_ms - row.from_ms);
const CHARTS = [
  {
    title: 'Joined the queue and let in',
    unit: 'visitors a minute',
    text: rate,
    steps: STEPS.parts,
    series: [
      { name: 'Joined', kind: 'second', of: aMinute('joined') },
      { name: 'Let in', kind: 'line', of: aMinute('admitted') },
    ],
  },
  {
    title: 'Waiting',
    unit: 'visitors',
    series: [{ name: 'Waiting', kind: 'area', of: row => row.waiting }],
  },
  {
    title: 'Waited over time',
    unit: 'until let in',
    text: duration,
    steps: STEPS.seconds,
    series: [
      { name: 'Median', kind: 'line', of: row => row.wait_half },
      { name: '90 %', kind: 'second', of: row => row.wait_most },
    ],
  },
  {
    title: 'Inside',
    unit: 'visitors',
    series: [
      { name: 'Inside', kind: 'area', of: row => row.active },
      { name: 'Cap', kind: 'limit', of: row => row.cap },
    ],
  },
  {
    title: 'Gave up',
    unit: 'visitors a minute',
    text: rate,
    steps: STEPS.parts,
    series: [{ name: 'Gave up', kind: 'second', of: aMinute('abandoned') }],
  },
];

export class RoomCharts extends Charts {
  constructor(name) {
    super(CHARTS, async (from, until, step) => {
      const asked = new URLSearchParams({
        from: Math.floor(from),
        until: Math.ceil(until),
        step,
      });
      return (await call('GET', `/${name}/series?${asked}`)).steps;
    });
  }

  // Updates the charts from the columns of the last hour's minutes, the log and the events.
  collected({ minutes, log, events }) {
    const rows = minutes.ends_ms.map((_, i) =>
      Object.fromEntries(
        Object.entries(minutes).map(([name, column]) => [name, column[i]]),
      ),
    );
    const last = rows.at(-1)?.ends_ms ?? Date.now();
    const marks = log
      .filter(act => !act.visitor)
      .map(act => ({ ms: act.at, text: `${act.by}: ${act.text}` }));
    for (const {
      name,
      prequeue_from: prequeue,
      opens_at: opens,
      closes_at: closes,
    } of events) {
      for (const [ms, what] of [
        [prequeue, 'pre-queue begins'],
        [opens, 'opens'],
        [closes, 'closes'],
      ])
        if (ms != null) marks.push({ ms, text: `Event ${name} ${what}` });
    }
    const seen = events
      .map(each => ({
        from: each.prequeue_from ?? each.opens_at - BEFORE,
        until: each.closes_at,
      }))
      .filter(
        ({ from, until }) =>
          from < last && (until === null || until > last - DAY),
      )
      .sort((a, b) => a.from - b.from);
    this.update({ rows, marks, event: seen.at(-1) ?? null });
  }
}
