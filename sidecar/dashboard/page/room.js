// One room's card, which is built once from the template and updated by every event.

import { tell } from './acts.js';
import { Controls, words } from './controls.js';
import { sure } from './forecast.js';
import { sayMessage } from './message.js';
import { clock, date, duration, make, number, put, rate } from './draw.js';
import { latest } from './log.js';
import { changedAtRunTime, roomState, stoppedBy } from './modes.js';
import { People } from './people.js';
import { RoomCharts } from './room-charts.js';

const AWAY = {
  bounded:
    'newcomers are let in by each replica within the slots that were free',
  admit: 'everybody is let in',
  wait: 'nobody new is let in',
};

export class Room {
  constructor(name) {
    this.name = name;
    this.root = document
      .getElementById('t-room')
      .content.firstElementChild.cloneNode(true);
    this.root.id = `room-${name}`;
    this.$ = selector => this.root.querySelector(selector);
    const title = this.$('h1');
    title.textContent = name;
    title.id = `title-${name}`;
    this.root.setAttribute('aria-labelledby', title.id);
    this.$('.to-wall').href =
      `/dashboard/wall?room=${encodeURIComponent(name)}`;
    this.$('.to-look').href = `#/look/${encodeURIComponent(name)}`;
    this.charts = new RoomCharts(name);
    this.$('.curves').append(this.charts.element);
    this.$('.all-acts').href = `#/log/${encodeURIComponent(name)}`;
    this.people = new People(this);
    this.controls = new Controls(this);
  }

  // Shows the figures of the event `now`.
  now(state) {
    this.state = state;
    const { settings, a_minute: minute } = state;
    const figures = {
      waiting: number(state.waiting),
      active: number(state.active),
      cap:
        state.cap < settings.total_active_users
          ? `${number(state.cap)} (cap ${number(settings.total_active_users)})`
          : number(settings.total_active_users),
      wait: duration(state.wait_seconds),
      provisional: number(state.provisional),
      joined: rate(minute?.joined),
      admitted: rate(minute?.admitted),
      abandoned: rate(minute?.abandoned),
    };
    for (const [name, text] of Object.entries(figures))
      put(this.$(`[data-f=${name}]`), text);
    const bar = this.$('progress');
    bar.max = Math.max(
      state.cap ?? settings.total_active_users,
      state.active || 0,
      1,
    );
    bar.value = state.active || 0;
    bar.setAttribute(
      'aria-label',
      `${figures.active} of ${figures.cap} inside`,
    );
    const { word, meaning } = roomState(state);
    put(this.$('.mode'), word);
    const page = this.$('.to-page');
    page.hidden = !state.site;
    if (state.site)
      page.href = `${state.site}/_waitroom/${encodeURIComponent(this.name)}/?next=/`;
    this.$('.mode').dataset.kind = state.state;
    put(this.$('.meaning'), meaning);
    put(this.$('.stopped'), stoppedBy(state));
    this.$('.stopped').hidden = !stoppedBy(state);
    const { adaptive } = state;
    put(
      this.$('.adaptive'),
      adaptive ? `Site: ${adaptive.state} (${adaptive.text})` : '',
    );
    this.$('.adaptive').hidden = !adaptive;
    this.charts.now(state);
    put(this.$('.differs'), changedAtRunTime(state));
    this.$('.differs').hidden = !changedAtRunTime(state);
    put(
      this.$('.health'),
      state.away
        ? 'The store does not answer'
        : `The store answers, to ${number(state.replicas)} ${state.replicas === 1 ? 'replica' : 'replicas'}`,
    );
    this.root.classList.toggle('away', state.away);
    this.notices(state);
    this.event(state);
    this.lines(state);
    this.changed(state);
    this.controls.now(state);
    latest(this.root, this.name, state.now_ms);
  }

  // Shows the charts, the waits and the head of the queue of the event `study`.
  collected(found) {
    const { waits, line } = found;
    this.charts.collected(found);
    for (const each of this.root.querySelectorAll('[data-f=window]'))
      put(each, `last ${waits.minutes ?? 60} min`);
    put(this.$('[data-f=half]'), duration(waits.half));
    put(this.$('[data-f=most]'), duration(waits.most));
    this.people.collected(line);
  }

  notices(state) {
    const notices = [];
    if (state.away)
      notices.push(
        `The store does not answer${state.as_of_ms ? ` since ${clock(state.as_of_ms)}` : ''}. The figures are old. Those inside stay; ${AWAY[state.on_store_failure]}.`,
      );
    else if (state.recovery_stage === 2)
      notices.push(
        `The store was emptied: places are coming back. Nobody is called until ${clock(state.recovers_until_ms)}.`,
      );
    else if (state.recovery_stage === 1)
      notices.push(
        'The store was emptied: places are coming back. No positions are shown for a moment.',
      );
    if (state.shield_until_ms > state.now_ms)
      notices.push(
        'The shield is up: newcomers come too fast, and join from the page.',
      );
    const over = state.active - state.settings.total_active_users;
    if (!state.away && over > 0)
      notices.push(
        `${number(over)} more than the cap are inside: they stay, and nobody is called until there is room.`,
      );
    if (state.settings.total_active_users === 0)
      notices.push('The cap is 0: nobody is let in.');
    const list = this.$('.notices');
    if (
      [...list.children].map(item => item.textContent).join() === notices.join()
    )
      return;
    list.replaceChildren(...notices.map(text => make('li', '', text)));
  }

  // Describes the room's events, with times of this browser's clock.
  event({ phase, event, coming }) {
    const said = [];
    if (event && phase === 'prequeue')
      said.push(`Event ${event.name} opens on ${date(event.opens_at)}.`);
    if (event && phase === 'open') {
      said.push(
        `Event ${event.name} is open${event.closes_at ? ` until ${date(event.closes_at)}` : ''}.`,
      );
      if (event.replaces.length)
        said.push(`It sets ${event.replaces.join(', ')}.`);
    }
    if (coming) {
      const before = coming.prequeue_from
        ? `pre-queue from ${date(coming.prequeue_from)}, `
        : '';
      said.push(
        `Next event: ${coming.name}, ${before}opens on ${date(coming.opens_at)}.`,
      );
    }
    const line = this.$('.event');
    line.hidden = !said.length;
    put(line, said.join(' '));
  }

  lines({ lines = [], waiting }) {
    const list = this.$('.lines');
    const drawn = waiting - lines.reduce((sum, each) => sum + each.waiting, 0);
    const all = lines.map(each => [
      each.line,
      each.waiting,
      `wait ${duration(each.wait_seconds)}`,
    ]);
    if (drawn > 0) all.unshift(['drawn', drawn, 'before all sub-queues']);
    list.hidden = !lines.length;
    const key = JSON.stringify(all);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(
      ...all.map(([name, people, wait]) => {
        const box = make('div');
        box.append(
          make('dt', '', name),
          make('dd', '', number(people)),
          make('dd', 'hint', wait),
        );
        return box;
      }),
    );
  }

  changed({ changed = {}, file }) {
    const list = this.$('.changed');
    const key = JSON.stringify([changed, file]);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    const items = Object.entries(changed).map(([name, value]) => {
      const say = name === 'message' ? sayMessage : words;
      const text = `${name}: ${say(value)}, file: ${say(file[name])} `;
      const item = make('li', '', text),
        back = make('button', '', 'Take back');
      back.type = 'button';
      back.dataset.needs = 'operator';
      back.setAttribute('aria-label', `Take back ${name}`);
      back.addEventListener('click', () =>
        tell(this.$('.changed + output'), () => this.takeBack(name)),
      );
      item.append(back);
      return item;
    });
    if (!items.length)
      items.push(make('li', '', 'Nothing: all is as in the settings file.'));
    const hasFocus = list.contains(document.activeElement);
    list.replaceChildren(...items);
    if (hasFocus) list.focus();
  }

  // Resets a setting to the value of the settings file.
  async takeBack(name) {
    const changes = { [name]: null };
    if (!(await sure(this.state, changes))) return null;
    const said = `${name} is as in the settings file again.`;
    return this.controls.set(changes, () => said);
  }
}
