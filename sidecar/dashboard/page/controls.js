// The controls of a room. Each control shows the effect of a change before the change, and offers
// to undo the change.

import { ask, call, change, tell } from './acts.js';
import { number, put } from './draw.js';
import {
  forecast,
  sayCap,
  sayDrain,
  sayPause,
  sayRate,
  sayResume,
  sure,
} from './forecast.js';
import { isShown, MessageField, textOf } from './message.js';
import { roomState } from './modes.js';

const TYPED_MS = 250,
  AGAIN_MS = 5000;
const RESUMED = { queue_all: false, max_waiting: null };

export const words = value =>
  value == null
    ? 'none'
    : typeof value === 'string'
      ? `“${value}”`
      : typeof value === 'number'
        ? number(value)
        : typeof value === 'object'
          ? JSON.stringify(value)
          : String(value);

const because = why => (why ? `?${new URLSearchParams({ why })}` : '');
// Asks for a reason too, which may be empty. Resolves to the reason, or to null.
const askWhy = asked =>
  ask({
    ...asked,
    label: 'Why? It goes into the log.',
    isOptional: true,
    check: () => '',
  });

export class Controls {
  constructor(room) {
    this.room = room;
    this.$ = room.$;
    this.fields = [
      new Field(this, 'total_active_users', sayCap),
      new Field(this, 'new_users_per_minute', sayRate),
      new MessageField(this),
    ];
    this.buttons();
  }

  get state() {
    return this.room.state;
  }

  now(state) {
    const { queue_all: paused, suspended } = state.settings;
    const isDraining = state.mode === 'draining';
    for (const field of this.fields) field.follow();
    this.can('pause', !paused && !suspended);
    this.can(
      'resume',
      !suspended && (paused || isDraining),
      paused || isDraining,
    );
    this.can('drain', paused || state.settings.max_waiting !== 0);
    this.can('suspend', !suspended);
    this.can('unsuspend', suspended, true);
    this.$('[data-do=unsuspend]').hidden = !suspended;
    this.foretell(state, paused, isDraining);
  }

  // Shows the action that fits the state, and the effect of that action.
  foretell(state, paused, isDraining) {
    const line = this.$('[data-control=run] .will');
    if (state.settings.suspended)
      return put(
        line,
        `End it: newcomers queue again where the room is full. ${number(state.waiting)} wait.`,
      );
    if (!paused && !isDraining)
      return put(
        line,
        `Pause: nobody is called, ${number(state.waiting)} wait, the ${number(state.active)} inside stay. It asks first.`,
      );
    put(line, sayResume(state, paused ? this.resumed : null));
    if (!paused || Date.now() - (this.resumedAt ?? 0) < AGAIN_MS) return;
    this.resumedAt = Date.now();
    forecast(this.room.name, RESUMED).then(found => {
      this.resumed = found;
      if (this.state.settings.queue_all)
        put(line, sayResume(this.state, found));
    });
  }

  // `isMain` is true for the action that fits the state.
  can(what, is, isMain = false) {
    const button = this.$(`[data-do=${what}]`);
    button.setAttribute('aria-disabled', String(!is));
    button.classList.toggle('main', is && isMain);
  }

  set(changes, says, why = '') {
    return change(this.room.name, 'PATCH', because(why), changes, says);
  }

  // Returns the text of a dialog before and after the forecast has come.
  foretold(says, changes) {
    const { state } = this;
    return {
      text: says(state, null),
      better: forecast(this.room.name, changes).then(found =>
        says(state, found),
      ),
    };
  }

  buttons() {
    const act = (what, how) => {
      const button = this.$(`[data-do=${what}]`),
        output = button.closest('.control').querySelector('output');
      button.addEventListener('click', () => {
        if (button.getAttribute('aria-disabled') !== 'true') tell(output, how);
      });
    };
    const { name } = this.room;
    const mode = room => {
      const { word, meaning } = roomState(room);
      return `${word}: ${meaning}`;
    };
    const post = (what, why = '') =>
      change(name, 'POST', `/${what}${because(why)}`, undefined, mode);
    // Asks, and acts with the reason.
    const asking = (what, asked, how) =>
      act(what, async () => {
        const why = await askWhy(asked());
        return why == null ? null : how(why);
      });
    asking(
      'pause',
      () => ({
        title: `Pause ${name}?`,
        go: 'Pause',
        ...this.foretold(sayPause, { queue_all: true }),
      }),
      why => post('pause', why),
    );
    // A message about the pause is likely to be wrong after it.
    act('resume', async () => {
      const { settings, changed = {}, now_ms: now } = this.state;
      if (!('message' in changed) || !isShown(settings.message, now))
        return post('resume');
      const answer = await ask({
        title: `Resume ${name}?`,
        go: 'Resume',
        text: 'Visitors still see the message that was set meanwhile.',
        tick: `Take it away: “${textOf(settings.message)}”`,
      });
      return answer && post(`resume?clear_message=${answer.isTicked}`);
    });
    asking(
      'drain',
      () => ({
        title: `Drain ${name}?`,
        go: 'Drain',
        ...this.foretold(sayDrain, { max_waiting: 0, queue_all: false }),
      }),
      why => post('drain', why),
    );
    asking(
      'suspend',
      () => ({
        title: `Suspend ${name}?`,
        go: 'Suspend',
        danger: true,
        text: `The room is off. Everybody passes, uncounted: the ${number(this.state.waiting)} in the queue at their next poll, and all who come. Now ${number(this.state.active)} are inside, of ${number(this.state.settings.total_active_users)}.`,
      }),
      why => this.set({ suspended: true }, mode, why),
    );
    act('unsuspend', () =>
      this.set({ suspended: this.state.file.suspended ? false : null }, mode),
    );
    act(
      'reset',
      async () =>
        (await ask({
          title: `Reset the queue of ${name}?`,
          go: 'Reset the queue',
          danger: true,
          text: `Everybody in the queue, ${number(this.state.waiting)} now, loses the place. The ${number(this.state.active)} inside stay. It cannot be undone.`,
          label: `Type the room's name, ${name}`,
          check: typed => (typed === name ? '' : `That is not ${name}.`),
        })) &&
        `${number((await call('POST', `/${name}/reset`)).removed)} places removed.`,
    );
  }
}

// The field of a setting. It shows the value in force, unless the operator is typing in it.
class Field {
  // `says` returns a text about the effect of the value, from the room's state and the forecast.
  constructor(controls, name, says) {
    Object.assign(this, { controls, name, says });
    this.form = controls.$(`[data-control=${name}]`);
    this.field = this.form.querySelector('input');
    this.will = this.form.querySelector('.will');
    this.output = this.form.querySelector('output');
    this.back = this.form.querySelector('.back');
    this.field.addEventListener('input', () => this.foretell(TYPED_MS));
    this.form.addEventListener('submit', event => {
      event.preventDefault();
      this.send(this.value());
    });
    this.back.addEventListener('click', () => this.send(null));
    for (const button of this.form.querySelectorAll('[data-step]'))
      button.addEventListener('click', () => this.step(button.dataset.step));
  }

  get isTyped() {
    return this.field.value !== (this.field.dataset.known ?? '');
  }

  // Changes the number in the field by some percent, by 1 at least. Nothing is sent.
  step(percent) {
    const { value, min, max } = this.field,
      by = Math.max(1, Math.round((Number(value) * Math.abs(percent)) / 100));
    if (value === '') return;
    const to = Number(value) + Math.sign(percent) * by;
    this.field.value = Math.min(Number(max), Math.max(Number(min), to));
    this.foretell(0);
  }

  value() {
    const text = this.field.value.trim();
    return text === '' ? null : Number(text);
  }

  follow() {
    const { settings, file, changed = {} } = this.controls.state;
    const value = String(settings[this.name] ?? '');
    if (!this.isTyped && this.field.value !== value) this.field.value = value;
    this.field.dataset.known = value;
    if (!this.isTyped) this.hide();
    else if (Date.now() - (this.lookedAt ?? 0) > AGAIN_MS) this.foretell(0);
    const isOffered = this.name in changed;
    this.back.hidden = !isOffered && document.activeElement !== this.back;
    put(this.back, `Reset to configured value: ${words(file[this.name])}`);
  }

  hide() {
    clearTimeout(this.timer);
    this.asked = null;
    this.will.hidden = true;
  }

  // Shows the effect of the value in the field.
  foretell(ms) {
    clearTimeout(this.timer);
    this.lookedAt = Date.now();
    if (!this.isTyped || !this.field.checkValidity()) return this.hide();
    const asked = (this.asked = {});
    this.timer = setTimeout(async () => {
      const value = this.value(),
        { name } = this.controls.room;
      const found = await forecast(name, { [this.name]: value });
      if (asked !== this.asked) return;
      this.will.hidden = !found;
      if (found) put(this.will, this.says(this.controls.state, found, value));
    }, ms);
  }

  send(value) {
    this.hide();
    const changes = { [this.name]: value };
    tell(this.output, async () => {
      if (!(await sure(this.controls.state, changes))) return null;
      const done = await this.controls.set(changes, ({ settings }) => {
        const now = settings[this.name];
        this.field.value = this.field.dataset.known = String(now ?? '');
        const { phase, event } = this.controls.state;
        const isReplaced =
          phase === 'open' && event?.replaces.includes(this.name);
        return isReplaced
          ? `While ${event.name} is open, it is ${words(now)} all the same.`
          : `It is ${words(now)} now.`;
      });
      return done;
    });
  }
}
