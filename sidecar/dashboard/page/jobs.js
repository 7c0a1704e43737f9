// A target's jobs, newest first, by pages, with the actions for each job.

import { request, tell } from './acts.js';
import { copyable } from './copy.js';
import { showJob } from './details.js';
import { make, number, put } from './draw.js';
import {
  KINDS,
  cancel,
  kindOf,
  mayCancel,
  mayRetry,
  place,
  retry,
  time,
} from './job.js';

const PAGE = 20;
const COLUMNS = ['State', 'HTTP', 'Owner', 'Tries', 'Created', 'Ended'];

export class Jobs {
  constructor(target) {
    this.target = target;
    this.$ = selector => target.root.querySelector(`.jobs ${selector}`);
    this.rows = new Map();
    this.after = []; // the `after` of each page before
    this.isOpen = false;
    const opener = this.$('[data-do=jobs]'),
      list = this.$('.list');
    list.id = `jobs-${target.name}`;
    opener.setAttribute('aria-controls', list.id);
    opener.setAttribute('aria-label', `Jobs of ${target.name}`);
    this.$('table').setAttribute(
      'aria-label',
      `Jobs of ${target.name}, newest first`,
    );
    opener.addEventListener('click', () => {
      this.isOpen = !this.isOpen;
      list.hidden = !this.isOpen;
      opener.setAttribute('aria-expanded', String(this.isOpen));
      if (this.isOpen) this.turn([]);
    });
    this.state = this.$('select');
    this.state.append(
      ...['', ...Object.keys(KINDS)].map(state => {
        const option = make('option', '', state || 'all');
        option.value = state;
        return option;
      }),
    );
    this.state.addEventListener('change', () => this.turn([]));
    this.page('newest', () => this.turn([]));
    this.page('older', () => this.turn([...this.after, this.next]));
  }

  page(what, how) {
    const button = this.$(`[data-do=${what}]`);
    button.addEventListener('click', () => {
      if (button.getAttribute('aria-disabled') !== 'true') how();
    });
  }

  turn(after) {
    this.after = after;
    tell(this.$('output'), () => this.look());
  }

  // Loads the current page. The response to an earlier request is not shown.
  async look() {
    if (!this.isOpen) return;
    const asked = (this.asked = {});
    const query = new URLSearchParams({
      target: this.target.name,
      limit: PAGE,
    });
    if (this.state.value) query.set('state', this.state.value);
    if (this.after.length) query.set('after', this.after.at(-1));
    const { jobs, next } = await request('GET', `/v1/jobs?${query}`);
    if (asked !== this.asked || !this.isOpen) return;
    this.next = next;
    this.show(jobs);
    this.$('[data-do=newest]').setAttribute(
      'aria-disabled',
      String(!this.after.length),
    );
    this.$('[data-do=older]').setAttribute('aria-disabled', String(!next));
    put(this.$('.pages .hint'), `Page ${number(this.after.length + 1)}`);
    this.$('.pages').hidden = !this.after.length && !next;
  }

  // Each job keeps its row, so that no row changes to another job while it is tapped.
  show(jobs) {
    const body = this.$('tbody');
    const ids = new Set(jobs.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (ids.has(id)) continue;
      if (row.root.contains(document.activeElement))
        this.state.focus({ preventScroll: true });
      row.root.remove();
      this.rows.delete(id);
    }
    let at = body.firstElementChild;
    for (const job of jobs) {
      let row = this.rows.get(job.id);
      if (!row) this.rows.set(job.id, (row = this.row(job.id)));
      this.fill(row, job);
      if (row.root === at) at = at.nextElementSibling;
      else body.insertBefore(row.root, at);
    }
    this.$('table').hidden = !jobs.length;
    this.$('.nothing').hidden = jobs.length > 0;
    put(
      this.$('.nothing'),
      this.state.value
        ? `No job is ${this.state.value} here.`
        : 'There is no job here.',
    );
  }

  row(id) {
    const root = make('tr'),
      job = make('th'),
      buttons = make('div', 'row');
    job.scope = 'row';
    job.append(copyable(id), make('span', 'call'));
    const cells = [
      job,
      ...COLUMNS.map(title => {
        const cell = make('td');
        cell.dataset.title = title;
        return cell;
      }),
    ];
    const row = { root, cells };
    const act = (name, text, how) => {
      const button = (row[name] = make(
        'button',
        name === 'cancel' ? 'danger' : '',
        text,
      ));
      button.type = 'button';
      button.setAttribute('aria-label', `${text.replace(' …', '')}: ${id}`);
      button.addEventListener('click', how);
      buttons.append(button);
    };
    const then = how => () =>
      tell(this.$('output'), async () => {
        const said = await how(row.job);
        if (said) this.target.refresh();
        return said;
      });
    act('details', 'Details', () => showJob(row.job, this.target));
    act('retry', 'Retry …', then(retry));
    row.retry.dataset.needs = 'operator';
    act('cancel', 'Cancel …', then(cancel));
    row.cancel.dataset.needs = 'operator';
    const last = make('td');
    last.append(buttons);
    cells[1].append(
      make('span', 'badge'),
      make('span', 'hint'),
      make('span', 'hint error'),
    );
    root.append(...cells, last);
    return row;
  }

  fill(row, job) {
    row.job = job;
    const [first, state, status, owner, tries, created, ended] = row.cells;
    put(
      first.querySelector('.call'),
      job.kind === 'online' ? 'online' : `${job.method} ${job.path}`,
    );
    const [badge, where, error] = state.children;
    put(badge, job.state);
    badge.dataset.kind = kindOf(job);
    put(where, place(job));
    put(error, job.error ?? '');
    put(status, job.status == null ? '–' : String(job.status));
    put(owner, job.class ? `${job.owner}, ${job.class}` : job.owner);
    put(tries, number(job.attempts));
    put(created, time(job.created_at));
    put(ended, time(job.ended_at));
    for (const [name, is] of [
      ['retry', mayRetry(job)],
      ['cancel', mayCancel(job, this.target.state.settings)],
    ]) {
      if (!is && document.activeElement === row[name])
        row.details.focus({ preventScroll: true });
      row[name].hidden = !is;
    }
  }
}
