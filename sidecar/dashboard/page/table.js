// A table of a list of the replica, by pages. Each item keeps its row. The table has actions
// for one item and for several items. All values are shown as text.

import { tell } from './acts.js';
import { make, number, put } from './draw.js';

export const PAGE = 50;

const isOff = button => button.getAttribute('aria-disabled') === 'true';

export function action(text, how, isDanger = false) {
  const button = make('button', isDanger ? 'danger' : '', text);
  button.type = 'button';
  button.addEventListener('click', () => {
    if (!isOff(button)) how();
  });
  return button;
}

export function fillLink(cell, text, address) {
  if (!cell.firstChild) cell.append(make('a'));
  cell.firstChild.href = address;
  put(cell.firstChild, text);
}

export function fillBadge(cell, [kind, word]) {
  if (!cell.firstChild) cell.append(make('span', 'badge'));
  cell.firstChild.dataset.kind = kind;
  put(cell.firstChild, word);
}

export function fillTwo(cell, first, second) {
  if (!cell.firstChild) cell.append(make('span', 'who'), make('span', 'hint'));
  put(cell.firstChild, first);
  put(cell.lastChild, second);
}

// Returns a page of a list that is loaded as a whole, as a table's `read` does. Its `after` is the
// index of the page's first item.
export function cutPage(all, after, limit) {
  const start = Number(after || 0),
    end = start + limit;
  return {
    items: all.slice(start, end),
    next: all.length > end ? String(end) : null,
    count: all.length,
  };
}

export class Table {
  // `label` is the table's name for screen readers. `columns` has {title, isNumber?}, and either
  // text(item), which returns the cell's text, or fill(cell, item), which fills the cell. The cells
  // of the first column are the rows' heads. `key(item)` identifies a row, and is part of the names
  // of the row's buttons. `read(after, limit)` resolves to {items, next, count?}: `next` is the
  // `after` of the next page. `empty()` returns the text for a list without items. `acts` has the
  // actions for one row: {text, how(item), isDanger?, needs?, may?(item)}. `needs` is the lowest
  // role, or '' for any role. The default is operator. `several` has the actions for the selected
  // rows: {text, how(items), isDanger?}. Without any there are no checkboxes. An action returns its
  // result, or null if the operator has cancelled.
  constructor({ label, columns, key, read, empty, acts = [], several = [] }) {
    Object.assign(this, { label, columns, key, read, empty, acts, several });
    this.rows = new Map();
    this.selected = new Set();
    this.before = []; // the `after` of this page and of each page before
    this.build();
  }

  build() {
    this.root = make('div', 'listed');
    this.root.tabIndex = -1;
    this.root.setAttribute('role', 'group');
    this.root.setAttribute('aria-label', this.label);
    this.table = make('table');
    this.table.setAttribute('aria-label', this.label);
    const head = make('tr');
    const heading = (text, className = '') => {
      const cell = make('th', className, text);
      cell.scope = 'col';
      head.append(cell);
      return cell;
    };
    if (this.several.length) {
      this.all = this.box('Select all on this page', () =>
        this.select(this.all.checked ? [...this.rows.keys()] : []),
      );
      heading('', 'box').append(this.all);
      this.all.parentElement.dataset.needs = 'operator';
    }
    for (const { title, isNumber } of this.columns)
      heading(title, isNumber ? 'number' : '');
    if (this.acts.length)
      heading('').append(make('span', 'unseen', 'Controls'));
    const thead = make('thead');
    thead.append(head);
    this.body = make('tbody');
    this.table.append(thead, this.body);
    this.nothing = make('p', 'hint nothing');
    this.output = make('output');
    this.root.append(
      this.choice(),
      this.table,
      this.nothing,
      this.output,
      this.pager(),
    );
    this.table.hidden = this.nothing.hidden = true;
  }

  box(label, how) {
    const box = make('input');
    box.type = 'checkbox';
    box.setAttribute('aria-label', label);
    box.addEventListener('change', how);
    return box;
  }

  // Shows the actions for the selected rows.
  choice() {
    this.chosen = make('p', 'row chosen');
    this.chosenCount = make('span', 'hint');
    this.chosen.append(
      this.chosenCount,
      ...this.several.map(({ text, how, isDanger }) =>
        action(
          text,
          () =>
            this.act(async () => {
              const said = await how(
                [...this.selected].map(key => this.rows.get(key).item),
              );
              if (said != null) this.select([]);
              return said;
            }),
          isDanger,
        ),
      ),
    );
    this.chosen.hidden = true;
    return this.chosen;
  }

  pager() {
    this.pages = make('p', 'row pages');
    this.first = action('First', () => this.turn([]));
    this.previous = action('Previous', () =>
      this.turn(this.before.slice(0, -1)),
    );
    this.further = action('Next', () => this.turn([...this.before, this.next]));
    this.where = make('span', 'hint');
    this.pages.append(this.first, this.previous, this.further, this.where);
    this.pages.hidden = true;
    return this.pages;
  }

  // Runs `how`, shows the result, and loads the page again after a change.
  act(how) {
    return tell(this.output, async () => {
      const said = await how();
      if (said != null)
        await this.look().catch(() => {
          /* the next update tries again */
        });
      return said;
    });
  }

  turn(before) {
    this.before = before;
    this.select([]);
    return tell(this.output, async () => {
      await this.look();
      return null;
    });
  }

  // Clears the table, and loads the first page of another list.
  restart() {
    this.before = [];
    this.asked = null;
    this.select([]);
    this.show([]);
    this.nothing.hidden = this.pages.hidden = true;
    put(this.output, '');
  }

  // Loads the current page. The response to an earlier request is not shown.
  async look() {
    const asked = (this.asked = {});
    const { items, next, count } = await this.read(
      this.before.at(-1) ?? '',
      PAGE,
    );
    if (asked !== this.asked) return;
    this.next = next;
    this.show(items);
    this.select([...this.selected].filter(key => this.rows.has(key)));
    const at = this.before.length;
    this.pages.hidden = !at && !next;
    for (const [button, is] of [
      [this.first, at],
      [this.previous, at],
      [this.further, next],
    ])
      button.setAttribute('aria-disabled', String(!is));
    put(
      this.where,
      `Page ${number(at + 1)}${count == null ? '' : `; ${number(count)} in all`}`,
    );
  }

  // Each item keeps its row, so that no row changes to another item while it is tapped.
  show(items) {
    const keys = new Set(items.map(item => String(this.key(item))));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      if (row.root.contains(document.activeElement))
        this.root.focus({ preventScroll: true });
      row.root.remove();
      this.rows.delete(key);
    }
    let at = this.body.firstElementChild;
    for (const item of items) {
      const key = String(this.key(item));
      let row = this.rows.get(key);
      if (!row) this.rows.set(key, (row = this.row(key)));
      row.item = item;
      this.columns.forEach(({ text, fill }, i) => {
        if (fill) fill(row.cells[i], item);
        else put(row.cells[i], text(item));
      });
      for (const { button, may } of row.acts)
        button.setAttribute('aria-disabled', String(!may(item)));
      if (row.root === at) at = at.nextElementSibling;
      else this.body.insertBefore(row.root, at);
    }
    this.table.hidden = !items.length;
    this.nothing.hidden = items.length > 0;
    if (!items.length) put(this.nothing, this.empty());
  }

  row(key) {
    const row = { root: make('tr') };
    if (this.several.length) {
      const cell = make('td', 'box');
      cell.dataset.needs = 'operator';
      row.box = this.box(`Select ${key}`, () => {
        if (row.box.checked) this.selected.add(key);
        else this.selected.delete(key);
        this.select([...this.selected]);
      });
      cell.append(row.box);
      row.root.append(cell);
    }
    row.cells = this.columns.map(({ title, isNumber }, i) => {
      const cell = make(i ? 'td' : 'th', isNumber ? 'number' : '');
      if (i) cell.dataset.title = title;
      else cell.scope = 'row';
      return cell;
    });
    row.root.append(...row.cells);
    row.acts = this.acts.map(
      ({ text, how, isDanger, needs = 'operator', may = () => true }) => {
        const button = action(
          text,
          () => this.act(() => how(row.item)),
          isDanger,
        );
        if (needs) button.dataset.needs = needs;
        button.setAttribute('aria-label', `${text.replace(' …', '')}: ${key}`);
        return { button, may };
      },
    );
    if (row.acts.length) {
      const cell = make('td', 'acts'),
        buttons = make('div', 'row');
      buttons.append(...row.acts.map(({ button }) => button));
      cell.append(buttons);
      row.root.append(cell);
    }
    return row;
  }

  select(keys) {
    if (!this.several.length) return;
    this.selected = new Set(keys);
    for (const [key, row] of this.rows)
      row.box.checked = this.selected.has(key);
    this.all.checked = keys.length > 0 && keys.length === this.rows.size;
    this.all.indeterminate = keys.length > 0 && !this.all.checked;
    if (!keys.length && this.chosen.contains(document.activeElement))
      this.root.focus({ preventScroll: true });
    this.chosen.hidden = !keys.length;
    put(this.chosenCount, `${number(keys.length)} selected`);
  }
}
