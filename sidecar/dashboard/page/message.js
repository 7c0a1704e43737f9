// The control of the message to visitors: a text, texts for some languages, and an end.

import { request, tell } from './acts.js';
import { words } from './controls.js';
import { clock, date, make, put } from './draw.js';

const LENGTHS = { '15m': 15, '30m': 30, '1h': 60, '4h': 240, '1d': 1440 };
const NAMES = new Intl.DisplayNames('en', { type: 'language' });
// Returns the English name of a language, or the tag if the browser does not know it.
function nameOf(tag) {
  try {
    return NAMES.of(tag);
  } catch {
    return tag;
  }
}

const time = ms =>
  Math.abs(ms - Date.now()) < 12 * 3600e3 ? clock(ms).slice(0, 5) : date(ms);

// Returns the text for visitors whose language has none of its own, as the replica does.
export function textOf(message) {
  if (message == null || typeof message === 'string') return message ?? '';
  const { until, ...texts } = message;
  return texts.text ?? texts.en ?? Object.values(texts)[0];
}

// Returns a message in one line: its text, the other languages, and its end.
export function sayMessage(message) {
  if (message == null || typeof message === 'string') return words(message);
  const { text, until, ...texts } = message;
  const more = [
    ...Object.keys(texts),
    ...(until ? [`until ${time(until)}`] : []),
  ];
  return `“${textOf(message)}” (${more.join(', ')})`;
}

// Returns true if visitors see the message at that time.
export const isShown = (message, now) =>
  textOf(message) !== '' && !(message.until <= now);

export class MessageField {
  constructor(controls) {
    this.controls = controls;
    this.form = controls.$('[data-control=message]');
    [this.text, this.will, this.output, this.back, this.more] = [
      'textarea',
      '.will',
      'output',
      '.back',
      '.tongues',
    ].map(each => this.form.querySelector(each));
    [this.add, this.ends] = this.form.querySelectorAll('select');
    this.hint = this.form.querySelector('.ends');
    for (const [length, minutes] of Object.entries(LENGTHS))
      this.ends.append(
        new Option(
          minutes < 60 ? `for ${minutes} minutes` : `for ${minutes / 60} h`,
          length,
        ),
      );
    this.form.addEventListener('input', () => this.show());
    this.form.addEventListener('submit', event => {
      event.preventDefault();
      this.send(this.read() ?? this.nothing());
    });
    this.back.addEventListener('click', () => this.send(null));
    this.form
      .querySelector('[data-do=clear]')
      .addEventListener('click', () => this.send(this.nothing()));
    this.more.addEventListener('toggle', () => this.offer(), { once: true });
    this.add.addEventListener('change', () => {
      const field = this.insert(this.add.value, '');
      this.add.value = '';
      field.focus();
    });
    this.fill(null);
  }

  // Lists the languages of the page.
  async offer() {
    const tags = await request('GET', '/dashboard/preview/languages');
    for (const tag of tags) this.add.append(new Option(nameOf(tag), tag));
  }

  // Adds the field of a language, or returns the one that is there.
  insert(tag, text) {
    const known = this.others().find(field => field.lang === tag);
    if (known) return known;
    const label = make('label', '', `${nameOf(tag)} `),
      field = make('textarea');
    Object.assign(field, { rows: 2, maxLength: 500, lang: tag, value: text });
    field.dir = 'auto';
    label.append(field);
    this.more.querySelector('div').append(label);
    return field;
  }

  others() {
    return [...this.more.querySelectorAll('textarea')];
  }

  fill(message) {
    const { text, until, ...texts } =
      message && typeof message === 'object' ? message : { text: message };
    this.text.value = text ?? '';
    this.more.querySelector('div').replaceChildren();
    for (const [tag, each] of Object.entries(texts)) this.insert(tag, each);
    if (Object.keys(texts).length) this.more.open = true;
    this.ends.querySelector('[data-until]')?.remove();
    if (until) {
      const option = new Option(`until ${time(until)}`, until);
      option.dataset.until = '';
      this.ends.append(option);
    }
    this.ends.value = until ?? '';
    this.known = JSON.stringify(this.read());
    this.show();
  }

  // Returns what is typed, as the API takes it. null: nothing.
  read() {
    const texts = Object.fromEntries(
      [this.text, ...this.others()]
        .map(field => [field.lang || 'text', field.value.trim()])
        .filter(([, text]) => text),
    );
    const names = Object.keys(texts),
      end = this.ends.value;
    if (!names.length) return null;
    if (!end && names.join() === 'text') return texts.text;
    if (this.ends.selectedOptions[0]?.dataset.until != null)
      texts.until = Number(end);
    else if (end) texts.for = end;
    return texts;
  }

  // Removes the message. If a message is configured, an empty message replaces it.
  nothing() {
    return this.controls.state.file.message == null ? null : '';
  }

  get isTyped() {
    return JSON.stringify(this.read()) !== this.known;
  }

  follow() {
    const { settings, file, changed = {}, now_ms: now } = this.controls.state;
    const { message } = settings,
      text = JSON.stringify(message);
    if (text !== this.followed && !this.isTyped) {
      this.fill(message);
      this.followed = text;
    }
    const until = message?.until;
    this.hint.hidden = !until;
    put(
      this.hint,
      until > now
        ? `Visitors see it until ${time(until)}.`
        : `It ended at ${time(until ?? now)}. Visitors no longer see it.`,
    );
    const isOffered = 'message' in changed && file.message != null;
    this.back.hidden = !isOffered && document.activeElement !== this.back;
    put(
      this.back,
      `Reset to configured value: ${sayMessage(file.message ?? null)}`,
    );
  }

  // Shows how the text reads on the page.
  show() {
    const text = this.text.value.trim();
    this.will.hidden = !text || !this.isTyped;
    put(this.will.lastElementChild, text);
  }

  send(value) {
    this.will.hidden = true;
    tell(this.output, () =>
      this.controls.set({ message: value }, ({ settings }) => {
        this.fill(settings.message);
        this.followed = JSON.stringify(settings.message);
        const { phase, event } = this.controls.state;
        const isReplaced =
          phase === 'open' && event?.replaces.includes('message');
        const now = sayMessage(settings.message);
        return isReplaced
          ? `While ${event.name} is open, it is ${now} all the same.`
          : `It is ${now} now.`;
      }),
    );
  }
}
