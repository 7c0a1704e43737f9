// The charts of one room, with their marks.

import { call, session } from './acts.js';
import { aMinute, Charts, STEPS } from './chart.js';
import { duration, fine, number, put, rate } from './draw.js';

const DAY = 86400000,
  BEFORE = 900000;
const time = seconds => (seconds === 0 ? '0 s' : fine(seconds));
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
    title: 'Site and ceiling',
    unit: 'visitors; times at right',
    series: [
      { name: 'Inside', kind: 'area', of: row => row.active },
      { name: 'Ceiling', kind: 'line ceiling', of: row => row.ceiling },
      { name: 'p90', kind: 'second', of: row => row.p90, text: time },
      { name: 'Target', kind: 'target', of: row => row.target, text: time },
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

// The record of the estimate. It needs a history, from which `show` adds it to the rows.
const ESTIMATE = {
  title: 'Estimated and real wait',
  unit: '',
  text: duration,
  steps: STEPS.seconds,
  series: [
    { name: 'Waited', kind: 'line', of: row => row.waited ?? null },
    { name: 'Estimated', kind: 'second', of: row => row.promised ?? null },
    { name: 'At least', kind: 'limit', of: row => row.promised_low ?? null },
    { name: 'At most', kind: 'limit', of: row => row.promised_high ?? null },
  ],
};

export class RoomCharts extends Charts {
  constructor(name) {
    const all = session.history ? [...CHARTS, ESTIMATE] : CHARTS;
    super(all, async (from, until, step) => {
      const asked = new URLSearchParams({
        from: Math.floor(from),
        until: Math.ceil(until),
        step,
      });
      return this.aimed((await call('GET', `/${name}/series?${asked}`)).steps);
    });
    this.name = name;
    this.site = this.charts.find(({ title }) => title === 'Site and ceiling');
    this.site.element.hidden = true;
  }

  // Adds the target of an adaptive room to the rows in which it was adaptive.
  aimed(rows) {
    return rows.map(row => ({
      ...row,
      target: row.ceiling == null ? null : this.target,
    }));
  }

  // Shows or hides the chart of the site. `target` is its p90 in seconds, or null.
  now({ adaptive, p90_target: target }) {
    this.target = target;
    this.site.element.hidden = !adaptive;
  }

  async show() {
    await super.show();
    const { rows, step, turn } = this;
    if (!session.history || !rows.length) return;
    const asked = new URLSearchParams({
      from: new Date(rows[0].from_ms).toISOString(),
      to: new Date(rows.at(-1).ends_ms).toISOString(),
      step: step / 1000,
    }).toString();
    if (asked === this.asked) return;
    this.asked = asked;
    try {
      const { steps } = await call('GET', `/${this.name}/estimates?${asked}`);
      if (turn === this.turn) this.compare(steps);
    } catch {
      this.asked = null; // the other charts do not need the history
    }
  }

  // Adds the estimates to the rows of their minutes.
  compare(steps) {
    let checked = 0,
      held = 0;
    for (const each of steps) {
      const ms = Date.parse(each.at);
      const row = this.rows.find(
        ({ from_ms: from, ends_ms: ends }) => from <= ms && ms < ends,
      );
      if (row) Object.assign(row, { ...each, at: undefined });
      checked += each.estimates;
      held += each.held * each.estimates;
    }
    put(
      this.charts.at(-1).element.querySelector('.hint'),
      checked
        ? `the range held for ${Math.round((100 * held) / checked)} % of ${number(checked)}`
        : 'nothing to compare yet',
    );
    this.draw();
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
    this.update({ rows: this.aimed(rows), marks, event: seen.at(-1) ?? null });
  }
}
