// One target's card, which is built once from the template and updated every few seconds.

import { ask, request, tell } from './acts.js';
import { clock, duration, fine, number, put, rate } from './draw.js';
import { Jobs } from './jobs.js';
import { targetState } from './modes.js';
import { Reasons } from './reasons.js';
import { TargetCharts } from './target-charts.js';

const HISTORY_MS = 30000;
const STATES = [
  'pending',
  'called',
  'processing',
  'completed',
  'failed',
  'cancelled',
  'expired',
];

const lasting = seconds => (seconds < 60 ? `${seconds} s` : duration(seconds));
const until = iso => (iso ? ` until ${clock(Date.parse(iso))}` : '');

// Says what the target's state means.
const MEANINGS = {
  'coming back': () =>
    'The store was emptied: the queue is put together again. Nothing is called before.',
  paused: () => 'Nothing is called. Jobs wait.',
  'no worker': ({ runner_seen_at: seen }) =>
    `${seen ? `None has asked for jobs since ${clock(Date.parse(seen))}` : 'None has asked for jobs yet'}. Offline jobs wait until one is started: waitroom run-jobs.`,
  failing: ({ settings }) =>
    `${number(settings.break_after)} or more calls failed in a row. Nothing is called until one call is tried.`,
  trying: () => 'One call at a time, until one succeeds.',
  held: ({ held_until: held }) =>
    `The target asks for a rest (Retry-After): nothing is called${until(held)}.`,
  running: () => 'Jobs are called as the target has capacity.',
};

export class Target {
  // `gone` gets the target's name when the target is no longer configured. `refresh` loads all
  // targets again.
  constructor(name, { gone, refresh }) {
    Object.assign(this, { name, gone, refresh });
    this.root = document
      .getElementById('t-target')
      .content.firstElementChild.cloneNode(true);
    this.root.id = `target-${name}`;
    this.root.tabIndex = -1;
    this.$ = selector => this.root.querySelector(selector);
    const title = this.$('h2');
    title.textContent = name;
    title.id = `title-target-${name}`;
    this.root.setAttribute('aria-labelledby', title.id);
    this.address = `/v1/targets/${encodeURIComponent(name)}`;
    this.charts = new TargetCharts(this.address);
    this.reasons = new Reasons(`Why jobs of ${name} failed`);
    this.$('.ended').append(this.charts.element, this.reasons.element);
    this.$('.to-jobs').href = `#/jobs/${encodeURIComponent(name)}`;
    this.jobs = new Jobs(this);
    this.changedAt = this.collectedAt = 0;
    this.controls();
  }

  // `began` is the time of the request for the state. A state from before a change is not shown.
  now(state, began = Infinity) {
    if (began < this.changedAt) return;
    const { settings, counters } = (this.state = state);
    const hasRate = settings.rate != null;
    const figures = {
      pending: number(state.waiting + state.later),
      later: state.later ? `${number(state.later)} later` : '',
      running: number(state.running),
      concurrency: number(settings.concurrency),
      wait:
        settings.paused || !state.has_runner
          ? duration(null)
          : duration(state.wait_seconds),
      window: hasRate ? `Rate, in ${lasting(settings.window)}` : 'Rate',
      rate: hasRate
        ? `${number(state.calls_in_window)} of ${number(settings.rate)}`
        : 'none',
      capacity: rate(state.calls_per_second),
      mean: fine(state.mean_seconds),
      completed: number(counters.completed),
      failed: number(counters.failed),
      retried: number(counters.retried),
    };
    for (const [name, text] of Object.entries(figures))
      put(this.$(`[data-f=${name}]`), text);
    this.bar(
      'concurrency',
      state.running,
      settings.concurrency,
      `${figures.running} of ${figures.concurrency} processing`,
    );
    this.bar(
      'rate',
      state.calls_in_window,
      settings.rate,
      `${figures.rate} calls`,
    );
    this.$('[data-of=rate]').parentElement.hidden = !hasRate;

    const opens = state.open_until && Date.parse(state.open_until);
    const [word, look] = targetState(state.state, opens);
    this.look = look;
    put(this.$('.mode'), word);
    this.$('.mode').dataset.kind = look;
    put(this.$('.meaning'), MEANINGS[state.state]?.(state) ?? '');
    put(this.$('.where'), settings.url ?? 'called by its callers themselves');

    const isOfFile = state.source === 'file';
    put(
      this.$('.source'),
      isOfFile
        ? 'It is as the settings file has it.'
        : 'It was changed while running.',
    );
    for (const [name, is] of [
      ['pause', !settings.paused],
      ['resume', settings.paused],
      ['back', !isOfFile],
    ]) {
      this.$(`[data-do=${name}]`).setAttribute('aria-disabled', String(!is));
    }
    this.$('[data-do=resume]').classList.toggle('main', settings.paused);
    for (const name of ['concurrency', 'rate', 'window']) this.follow(name);
    const counts = STATES.filter(each => state.jobs[each]).map(
      each => `${number(state.jobs[each])} ${each}`,
    );
    put(this.$('.counts'), counts.join(', ') || 'None is kept.');
  }

  // Loads what costs more: the history every half minute, and the list of jobs if it is open.
  async collect() {
    const isDue = Date.now() - this.collectedAt > HISTORY_MS;
    if (isDue) this.collectedAt = Date.now();
    const about = { target: this.name, from: '24h' };
    await Promise.all([
      isDue && this.charts.collect(),
      isDue && this.reasons.collect(about),
      this.jobs.look(),
    ]);
  }

  bar(name, value, most, words) {
    const bar = this.$(`[data-of=${name}]`);
    bar.max = Math.max(most || 0, value, 1);
    bar.value = value;
    bar.setAttribute('aria-label', words);
  }

  // A field shows the value in force, unless the operator is typing in it.
  follow(name) {
    const field = this.$(`[name=${name}]`);
    const value = String(this.state.settings[name] ?? '');
    if (field.value === (field.dataset.known ?? '') && field.value !== value)
      field.value = value;
    field.dataset.known = value;
  }

  async set(changes) {
    const state = await request('PATCH', this.address, changes);
    this.changedAt = Date.now();
    for (const name of Object.keys(changes)) {
      const field = this.$(`[name=${name}]`);
      if (field)
        field.value = field.dataset.known = String(state.settings[name] ?? '');
    }
    this.now(state);
    return state.settings;
  }

  controls() {
    const act = (what, how) => {
      const button = this.$(`[data-do=${what}]`);
      const output = button.closest('.control').querySelector('output');
      button.addEventListener('click', () => {
        if (button.getAttribute('aria-disabled') !== 'true') tell(output, how);
      });
    };
    const form = (what, how) => {
      const control = this.$(`[data-control=${what}]`);
      control.addEventListener('submit', event => {
        event.preventDefault();
        tell(control.querySelector('output'), () => how(control.elements));
      });
    };
    const said = ({ rate: calls, window: seconds }) =>
      calls == null
        ? 'No rate'
        : `${number(calls)} calls in ${lasting(seconds)}, at most`;
    act(
      'pause',
      async () =>
        (await ask({
          title: `Pause ${this.name}?`,
          go: 'Pause',
          text: `Nothing is called, and its ${number(this.state.waiting + this.state.later)} pending jobs wait. Calls under way go on.`,
        })) &&
        (await this.set({ paused: true })) &&
        'It is paused. All workers know within seconds.',
    );
    act(
      'resume',
      async () =>
        (await ask({
          title: `Resume ${this.name}?`,
          go: 'Resume',
          text: `Its ${number(this.state.waiting + this.state.later)} pending jobs are called, as it has capacity.`,
        })) &&
        (await this.set({ paused: false })) &&
        'It is resumed. All workers know within seconds.',
    );
    form('concurrency', async ({ concurrency }) => {
      const now = this.state.settings.concurrency,
        wanted = Number(concurrency.value);
      if (wanted === now)
        return { text: `It is ${number(now)} already.`, isNothing: true };
      return (
        (await ask({
          title: `Change ${this.name}?`,
          go: 'Change',
          text: `${number(wanted)} calls at a time, instead of ${number(now)}, on all workers.`,
        })) &&
        `It is ${number((await this.set({ concurrency: wanted })).concurrency)} now.`
      );
    });
    form('rate', async ({ rate: calls, window }) => {
      const wanted = {
        rate: calls.value.trim() === '' ? null : Number(calls.value),
        window: Number(window.value),
      };
      if (said(wanted) === said(this.state.settings))
        return { text: `${said(wanted)}, already.`, isNothing: true };
      return (
        (await ask({
          title: `Change ${this.name}?`,
          go: 'Change',
          text: `${said(wanted)}, on all workers. Now: ${said(this.state.settings)}.`,
        })) && `${said(await this.set(wanted))}, now.`
      );
    });
    act('back', async () => {
      if (
        !(await ask({
          title: `Reset ${this.name} to configured values?`,
          go: 'Reset to configured values',
          danger: true,
          text: 'All that was changed while running is taken back. A target that the file does not have is gone, and nobody calls its jobs.',
        }))
      )
        return null;
      const { target } = await request('DELETE', this.address);
      this.changedAt = Date.now();
      if (!target) return this.gone(this.name);
      for (const output of this.root.querySelectorAll('.act output'))
        put(output, '');
      this.now(target);
      return 'What was changed is taken back.';
    });
  }
}
