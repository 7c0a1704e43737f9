// A table of the overview. Each name keeps its row, and rows with a problem come first.

import { make, number, put } from './draw.js';

// Trouble comes first, then rooms in which somebody waits, and last those that are closed as planned.
const RANKS = {
  critical: 0,
  lost: 0,
  warning: 1,
  info: 2,
  warn: 2,
  planned: 5,
};
const BUSY = 3,
  CALM = 4;
const byName = new Intl.Collator('en', { numeric: true }).compare;

export class Rows {
  // `heads` has the text, the meaning and the short text of each column after the name.
  constructor(title, path, heads) {
    Object.assign(this, { path, heads, rows: new Map(), wanted: '' });
    this.root = make('table', path);
    this.root.setAttribute('aria-label', title);
    this.root.hidden = true;
    const head = make('thead'),
      line = make('tr');
    [[title], ...heads].forEach(([text, meaning], i) => {
      const cell = make(text ? 'th' : 'td', i > 1 ? 'n' : '', text);
      if (text) cell.scope = 'col';
      if (meaning) cell.title = meaning;
      line.append(cell);
    });
    head.append(line);
    this.body = make('tbody');
    this.foot = make('caption', 'hint');
    this.root.append(this.foot, head, this.body);
    this.foot.hidden = true;
    // The keyboard reaches the link in the first cell. A pointer may click the whole row.
    this.body.addEventListener('click', event => {
      const link = event.target.closest('tr')?.querySelector('a');
      if (link && !event.target.closest('a') && !String(getSelection()))
        link.click();
    });
  }

  show(all, firing, more = 0) {
    this.root.hidden = !all.length;
    const names = new Set(all.map(each => each.name));
    for (const [name, row] of this.rows) {
      if (names.has(name)) continue;
      row.root.remove();
      this.rows.delete(name);
    }
    all.forEach((each, i) => {
      this.row(
        each,
        i,
        firing.filter(one => one.kind === each.kind && one.name === each.name),
      );
    });
    this.foot.hidden = !more;
    put(this.foot, `and ${number(more)} more`);
    this.order();
    this.filter(this.wanted);
  }

  row(each, place, alerts) {
    let row = this.rows.get(each.name);
    if (!row) {
      this.rows.set(each.name, (row = this.make(each)));
      this.body.append(row.root);
    }
    const [word, kind] = each.state;
    const [state, ...cells] = row.root.querySelectorAll('td');
    put(state, word);
    put(row.note, each.note ?? '');
    row.note.hidden = !each.note;
    if (word) state.dataset.kind = kind;
    state.classList.toggle('state', Boolean(word));
    each.cells.forEach((text, i) => {
      put(cells[i], text);
      cells[i].classList.toggle('none', !text || text === '–');
      if (cells[i].title !== text && this.path === 'webhooks')
        cells[i].title = text;
    });
    if (each.hour && cells[5].lastChild !== each.hour.picture) {
      cells[5].replaceChildren(
        make('small', '', each.hour.most ? number(each.hour.most) : ''),
        each.hour.picture,
      );
      cells[5].title = `At most ${number(each.hour.most)} waiting in the last 60 min`;
    }
    const count = cells.at(-1),
      worst = alerts[0]?.severity ?? '';
    put(
      count,
      alerts.length
        ? `${alerts.length} ${alerts.length === 1 ? 'alert' : 'alerts'}`
        : '',
    );
    count.className = alerts.length ? 'n alerted' : 'n none';
    count.dataset.severity = worst;
    row.place = place;
    const usual = RANKS[kind] ?? (each.isBusy ? BUSY : CALM);
    row.rank = Math.min(RANKS[worst] ?? usual, usual);
  }

  make(each) {
    const isLeaf = each.of, // it has no view of its own
      note = make('small', 'note-of');
    const root = make('tr'),
      name = make('th'),
      link = make(isLeaf ? 'span' : 'a', '', each.text ?? each.name);
    name.scope = 'row';
    name.title = each.name;
    if (!isLeaf) link.href = `#/${this.path}/${encodeURIComponent(each.name)}`;
    name.append(link, note);
    root.append(
      name,
      ...this.heads.map(([, , label], i) => {
        const cell = make('td', i ? 'n' : '');
        if (label) cell.dataset.label = label;
        return cell;
      }),
    );
    if (this.path === 'rooms') root.children[7].classList.add('hour');
    return { root, note, name: each.name, of: each.of };
  }

  // Rows do not move while the pointer or the focus is on them. Queues stay below their template.
  order() {
    if (
      this.body.matches(':hover') ||
      this.body.contains(document.activeElement)
    )
      return;
    const all = [...this.rows.values()];
    if (!all.some(row => row.of))
      all.sort((a, b) => a.rank - b.rank || byName(a.name, b.name));
    else all.sort((a, b) => a.place - b.place);
    if (all.every((row, i) => this.body.children[i] === row.root)) return;
    this.body.append(...all.map(row => row.root));
  }

  filter(text) {
    this.wanted = text;
    for (const row of this.rows.values())
      row.root.hidden = !row.name.includes(text.trim().toLowerCase());
  }
}
