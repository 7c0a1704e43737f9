// The queue of a room, a page at a time, and the search for one visitor.

import { ask, call, may, session, tell } from './acts.js';
import { clock, duration, make, moment, number, put } from './draw.js';
import { menu } from './menu.js';
import { askMove } from './move.js';

const HEAD = 10,
  PAGE = 50;
const VISITOR = /^([\w-]{22}|[0-9a-tv-z]{4}-?[0-9a-tv-z]{4})$/i;

export class People {
  constructor(room) {
    this.room = room;
    this.$ = room.$;
    this.rows = new Map();
    this.start = 0;
    this.head = [];
    const turn = (what, to) =>
      this.$(`[data-do=${what}]`).addEventListener('click', event => {
        if (event.currentTarget.getAttribute('aria-disabled') !== 'true')
          this.turn(to());
      });
    turn('head', () => 0);
    turn('previous', () =>
      this.start > HEAD ? Math.max(HEAD, this.start - PAGE) : 0,
    );
    turn('next', () => (this.start ? this.start + PAGE : HEAD));
    const look = this.$('[data-control=look]');
    look.addEventListener('submit', event => {
      event.preventDefault();
      this.search(look.querySelector('input').value.trim());
    });
  }

  // Shows the head of the queue from the event, or loads another page.
  collected(head) {
    this.head = head;
    if (this.start)
      this.read(this.start).catch(() => {
        /* the next update tries again */
      });
    else this.show(head);
  }

  turn(start) {
    return tell(this.$('.line > output'), async () => {
      await this.read(start);
      return null;
    });
  }

  // The response to an earlier request is not shown.
  async read(start) {
    const asked = (this.asked = {});
    const people = start
      ? (
          await call(
            'GET',
            `/${this.room.name}/waiting?after=${start}&limit=${PAGE}`,
          )
        ).waiting
      : this.head;
    if (asked !== this.asked) return;
    this.start = start;
    this.show(people);
  }

  pages(shown) {
    const { waiting } = this.room.state ?? {};
    const isMore = this.start + shown < (waiting ?? 0);
    this.$('.pages').hidden = !this.start && !isMore;
    for (const [what, is] of [
      ['head', this.start],
      ['previous', this.start],
      ['next', isMore],
    ])
      this.$(`[data-do=${what}]`).setAttribute('aria-disabled', String(!is));
    put(
      this.$('.pages .hint'),
      shown
        ? `${number(this.start + 1)} to ${number(this.start + shown)} of ${number(waiting)}, at ${clock(Date.now())}`
        : '',
    );
  }

  // Each visitor keeps its row, so that no row changes to another visitor while it is tapped. The
  // place is the one in the visitor's sub-queue if the page is the first of the queue.
  show(people) {
    const body = this.$('.line tbody');
    const visitors = people.map(({ visitor }) => visitor);
    for (const [visitor, row] of this.rows) {
      if (visitors.includes(visitor)) continue;
      if (row.contains(document.activeElement))
        this.room.root.focus({ preventScroll: true });
      row.remove();
      this.rows.delete(visitor);
    }
    let at = body.firstElementChild;
    const places = new Map();
    for (const each of people) {
      places.set(each.line, (places.get(each.line) || 0) + 1);
      let row = this.rows.get(each.visitor);
      if (!row) this.rows.set(each.visitor, (row = this.row(each)));
      put(
        row.firstElementChild,
        number(this.start ? each.position : places.get(each.line)),
      );
      const isDrawn = !each.line && this.room.state?.lines?.length;
      put(
        row.querySelector('.hint'),
        [each.line || (isDrawn ? 'drawn' : ''), each.class]
          .filter(Boolean)
          .join(', '),
      );
      put(
        row.querySelector('.joined'),
        since(each.joined_at_ms, this.room.state?.now_ms),
      );
      if (row === at) at = at.nextElementSibling;
      else body.insertBefore(row, at);
    }
    this.$('.line table').hidden = !visitors.length;
    this.$('.line .nobody').hidden = visitors.length > 0;
    put(
      this.$('.line .nobody'),
      this.start
        ? 'Nobody waits so far back now.'
        : this.room.state?.phase === 'prequeue'
          ? 'Nobody has a place before the opening, when they are drawn.'
          : 'The queue is empty.',
    );
    this.pages(people.length);
  }

  row({ visitor, number: short }) {
    const row = make('tr'),
      who = make('td'),
      what = make('td'),
      code = make('code', '', short);
    code.title = visitor;
    who.append(code, ' ', make('span', 'hint'));
    const output = this.$('.line > output');
    const items = !may('operator')
      ? []
      : this.acts(visitor, short, true).map(({ text, how, isDanger }) => ({
          text,
          isDanger,
          how: () => tell(output, how),
        }));
    items.push({
      text: 'Look up',
      how: () => {
        this.$('[data-control=look] input').value = short;
        this.search(visitor);
      },
    });
    what.append(menu('⋯', `Actions: ${short}`, items));
    row.append(make('th'), who, make('td', 'joined'), what);
    row.firstElementChild.scope = 'row';
    return row;
  }

  // Looks a visitor up whom the search at the top has found.
  find(visitor) {
    this.$('[data-control=look] input').value = visitor;
    this.search(visitor);
  }

  search(visitor) {
    const look = this.$('[data-control=look]');
    look.scrollIntoView({ block: 'nearest' });
    return tell(look.querySelector('output'), () => this.look(visitor, look));
  }

  async look(visitor, look) {
    const buttons = look.querySelector('.found');
    const past = look.querySelector('.past');
    buttons.hidden = true;
    past.replaceChildren();
    if (!VISITOR.test(visitor))
      throw new Error(
        'Write a reference such as 7K2Q-9XDM, or an id: 22 letters, digits, - and _.',
      );
    // The history comes first: it may know a number that no visitor in the room has any more.
    if (session.history) past.replaceChildren(...(await this.past(visitor)));
    const found = await call('GET', `/${this.room.name}/visitors/${visitor}`);
    const joined = found.joined_at_ms
      ? ` Joined ${since(found.joined_at_ms, this.room.state.now_ms)}.`
      : '';
    const said = {
      waiting:
        found.position == null
          ? 'In the pre-queue: the place is drawn at the opening.'
          : found.line
            ? `In sub-queue ${found.line}, at place ${number(found.line_position)}; ${number(found.position)} among all.${joined}`
            : `In the queue, at place ${number(found.position)}.${joined}`,
      called: `Called, and not here yet: until ${moment(found.ends_at_ms)}.`,
      inside: `Inside since ${moment(found.started_at_ms)}, until ${moment(found.ends_at_ms)} if nothing renews it.`,
      revoked: `Left or was released at ${moment(found.revoked_at_ms)}.`,
      unknown: 'Unknown: neither in the queue nor inside.',
    }[found.state];
    const waits = found.state === 'waiting' && found.position != null;
    if (
      may('operator') &&
      ['waiting', 'inside', 'called'].includes(found.state)
    ) {
      buttons.hidden = false;
      buttons.replaceChildren(
        ...this.acts(found.visitor, found.number, waits).map(
          ({ text, how }) => {
            const made = make('button', '', text);
            made.type = 'button';
            made.setAttribute(
              'aria-label',
              `${text.replace(' …', '')}: ${found.number}`,
            );
            made.addEventListener('click', () =>
              tell(look.querySelector('output'), how),
            );
            return made;
          },
        ),
      );
    }
    return found.class ? `${said} Class ${found.class}.` : said;
  }

  // Loads the events of a visitor from the history, if there is one.
  async past(visitor) {
    try {
      const { events } = await call(
        'GET',
        `/${this.room.name}/visitors/${visitor}/history`,
      );
      return events.map(({ at, kind, why, position, by, detail }) => {
        const what = [
          kind,
          why,
          position && `place ${number(Number(position))}`,
          by && `by ${by}`,
          detail,
        ];
        return make(
          'li',
          '',
          `${moment(Date.parse(at))}  ${what.filter(Boolean).join(', ')}`,
        );
      });
    } catch {
      return [];
    }
  }

  // Returns the actions for one visitor, who is shown by number.
  acts(visitor, short, waits) {
    const path = `/${this.room.name}/visitors/${visitor}`;
    const release = {
      text: 'Release …',
      isDanger: true,
      how: async () =>
        (await ask({
          title: 'Release this visitor?',
          go: 'Release',
          danger: true,
          text: `${short} loses the place or the session in ${this.room.name}. It cannot be undone.`,
        })) &&
        (await call('POST', `${path}/release`)) &&
        `${short} is released.`,
    };
    if (!waits) return [release];
    return [
      {
        text: 'Move …',
        how: async () => {
          const to = await askMove(short, this.room.state.classes);
          if (!to) return null;
          const { position } = await call('POST', `${path}/move`, to);
          return `${short} is at place ${number(position)} now${to.class ? `, as ${to.class}` : ''}.`;
        },
      },
      release,
    ];
  }
}

// Formats how long ago an event was, and its time.
function since(ms, now) {
  if (ms == null) return '–';
  return `${duration(Math.max(0, ((now ?? Date.now()) - ms) / 1000))} ago, ${moment(ms).slice(0, -3)}`;
}
