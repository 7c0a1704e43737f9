// Charts over time as SVG, without a library: the Content-Security-Policy allows no other scripts.

import { clock, make, moment, number, put, svg } from './draw.js';

// Returns the points of each section between two gaps. A value of null is a gap.
function stretches(points) {
  const found = [[]];
  for (const point of points) {
    if (point) found.at(-1).push(point);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter(each => each.length);
}

// Draws a line for a row of a table, 80 by 20 pixels, in the colour of the text. null is a gap. The
// table has the same figures as text.
export function sparkline(values) {
  const width = 80,
    height = 20,
    inset = 2;
  const most = Math.max(...values, 1);
  const x = i =>
    inset + ((width - 2 * inset) * i) / Math.max(values.length - 1, 1);
  const y = value => height - inset - ((height - 2 * inset) * value) / most;
  const picture = svg('svg', {
    class: 'sparkline',
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    'aria-hidden': 'true',
  });
  for (const points of stretches(
    values.map((value, i) =>
      value == null ? null : `${x(i).toFixed(1)},${y(value).toFixed(1)}`,
    ),
  )) {
    // A single point becomes a line of no length, of which only the round ends are visible.
    picture.append(
      svg('polyline', {
        points: [...points, points.at(-1)].join(' '),
        fill: 'none',
        stroke: 'currentColor',
        'stroke-width': 1.5,
        'stroke-linejoin': 'round',
        'stroke-linecap': 'round',
      }),
    );
  }
  return picture;
}

const MINUTE = 60000,
  HOUR = 60 * MINUTE;
const RANGES = [
  ['15 min', HOUR / 4],
  ['1 h', HOUR],
  ['6 h', 6 * HOUR],
  ['24 h', 24 * HOUR],
];
// There is one sample a minute for the last two hours, and one in five minutes before.
const FINE = 2 * HOUR,
  COARSE = 5 * MINUTE,
  SHORTEST = 5 * MINUTE;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map(
  minutes => minutes * MINUTE,
);
const SPACE = { left: 52, right: 14, top: 10, bottom: 22 };
const SWATCH = 24,
  FLAG = 26;

// Returns the step between the values of an axis: 1, 2 or 5 times a power of ten, or a unit of
// time.
const tens = [-1, 0, 1, 2, 3, 4, 5, 6, 7].flatMap(n =>
  [1, 2, 5].map(each => each * 10 ** n),
);
export const STEPS = {
  whole: tens.filter(step => step >= 1),
  parts: tens,
  seconds: [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 18000, 36000,
    86400,
  ],
};

// The steps of the axis at the right, from 10 ms to 800 s.
const FINE_STEPS = [-2, -1, 0, 1, 2].flatMap(n =>
  [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8].map(each => each * 10 ** n),
);

// Returns a function that reads a row's count as a rate a minute; null if the count is unknown.
export const aMinute = name => row =>
  row[name] == null ? null : (row[name] * 60000) / (row.ends_ms - row.from_ms);

// Returns the values from 0 to the first one that is not below `most`.
export function values(most, steps, count = 4) {
  const step = steps.find(each => most / each <= count) ?? steps.at(-1);
  return Array.from(
    { length: Math.max(1, Math.ceil(most / step - 1e-9)) + 1 },
    (_, i) => i * step,
  );
}

// Returns round times of this browser's clock.
export function times(from, until, count) {
  const step = TIMES.find(each => (until - from) / each <= count) ?? 24 * HOUR;
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((from - zone) / step) * step + zone;
  return Array.from(
    { length: Math.max(0, Math.floor((until - first) / step) + 1) },
    (_, i) => first + i * step,
  );
}

const short = ms => moment(ms).slice(0, -3);
const button = (text, act) => {
  const made = make('button', '', text);
  made.type = 'button';
  made.addEventListener('click', act);
  return made;
};

// One of several charts. `series` has {name, of, kind, text}: `of` returns a row's value or null, and
// `kind` is the style: area, line, second, limit, target. A series with a `text` of its own has the
// axis at the right.
class Chart {
  constructor(
    { title, unit, series, text = number, steps = STEPS.whole },
    group,
  ) {
    series = series.map(each => ({ text, isRight: !!each.text, ...each }));
    Object.assign(this, { title, unit, series, text, steps, group });
    this.right = series.some(({ isRight }) => isRight)
      ? SPACE.left
      : SPACE.right;
    this.element = make('figure', 'chart');
    const caption = make('figcaption');
    caption.append(make('strong', '', title), ' ', make('span', 'hint', unit));
    const legend = make('ul', 'legend');
    this.values = series.map(({ name, kind }) => {
      const item = make('li'),
        value = make('span', 'value'),
        swatch = svg('svg', {
          width: SWATCH,
          height: 8,
          'aria-hidden': 'true',
        });
      swatch.append(
        svg('line', { class: kind, x1: 0, x2: SWATCH, y1: 4, y2: 4 }),
      );
      item.append(swatch, name, ' ', value);
      legend.append(item);
      return value;
    });
    this.plot = make('div', 'plot');
    this.picture = svg('svg', { role: 'img' });
    this.reader = make('div', 'reader');
    for (const [name, value] of Object.entries({
      role: 'slider',
      tabindex: 0,
      'aria-label': `${title}: reading point`,
      'aria-valuemin': 0,
    }))
      this.reader.setAttribute(name, value);
    this.plot.append(this.picture, this.reader);
    this.element.append(caption, legend, this.plot);
    this.listen();
    new ResizeObserver(() => {
      this.draw();
      if (this.group.charts[0] === this) this.group.flag();
    }).observe(this.plot);
  }

  listen() {
    const { reader, group } = this;
    const when = event =>
      this.ms(event.clientX - this.plot.getBoundingClientRect().left);
    let from = null;
    reader.addEventListener('pointerdown', event => {
      if (event.button || event.pointerType === 'touch') return;
      from = event.clientX;
      reader.setPointerCapture(event.pointerId);
    });
    reader.addEventListener('pointermove', event => {
      group.read(when(event));
      if (from !== null) group.select(when({ clientX: from }), when(event));
    });
    reader.addEventListener('pointerup', event => {
      const begun = from;
      from = null;
      group.select();
      if (begun !== null && Math.abs(event.clientX - begun) > 6)
        group.zoom(when({ clientX: begun }), when(event));
    });
    reader.addEventListener('pointercancel', () => {
      from = null;
      group.select();
    });
    reader.addEventListener('pointerleave', () => group.read(null));
    reader.addEventListener('blur', () => group.read(null));
    reader.addEventListener('dblclick', () => group.reset());
    reader.addEventListener('keydown', event => {
      if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        !group.key(event.key)
      )
        return;
      event.preventDefault();
    });
  }

  x(ms) {
    const { from, until } = this.group.view;
    return (
      SPACE.left +
      ((this.width - SPACE.left - this.right) * (ms - from)) / (until - from)
    );
  }

  // Returns the time at a position, within the range that is shown.
  ms(x) {
    const { from, until } = this.group.view;
    const share = (x - SPACE.left) / (this.width - SPACE.left - this.right);
    return from + Math.min(1, Math.max(0, share)) * (until - from);
  }

  draw() {
    const { width, height } = this.plot.getBoundingClientRect();
    if (!width || !this.group.view) return;
    Object.assign(this, { width, height });
    const { rows, view } = this.group;
    const all = this.series.map(({ of }) => rows.map(of));
    const most = right =>
      Math.max(
        0,
        ...all.filter((_, i) => this.series[i].isRight === right).flat(),
      );
    const marks = values(most(false), this.steps);
    const bottom = height - SPACE.bottom,
      end = width - this.right;
    const count = marks.length - 1;
    // The axis at the right has its labels at the same lines.
    const step =
      FINE_STEPS.find(each => most(true) / each <= count) ?? most(true) / count;
    this.y = (value, isRight) =>
      bottom -
      ((bottom - SPACE.top) * value) / (isRight ? step * count : marks.at(-1));
    const other = this.series.find(({ isRight }) => isRight);
    const shapes = [];
    for (const [i, value] of marks.entries()) {
      const y = Math.round(this.y(value)) + 0.5;
      if (other)
        shapes.push(this.label(other.text(i * step), { x: end + 6, y: y + 4 }));
      shapes.push(
        svg('line', {
          class: value ? 'grid' : 'base',
          x1: SPACE.left,
          x2: end,
          y1: y,
          y2: y,
        }),
      );
      shapes.push(
        this.label(this.text(value), {
          x: SPACE.left - 6,
          y: y + 4,
          'text-anchor': 'end',
        }),
      );
    }
    for (const ms of times(view.from, view.until, Math.max(2, width / 80))) {
      const x = Math.round(this.x(ms)) + 0.5;
      shapes.push(
        svg('line', {
          class: 'base',
          x1: x,
          x2: x,
          y1: bottom,
          y2: bottom + 4,
        }),
      );
      shapes.push(
        this.label(clock(ms).slice(0, 5), {
          x: Math.min(x, width - 16),
          y: height - 4,
          'text-anchor': 'middle',
        }),
      );
    }
    this.series.forEach(({ kind, isRight }, i) => {
      const points = rows.flatMap((row, n) => [
        ...(this.group.isGap(row) ? [null] : []),
        all[i][n] == null
          ? null
          : [
              this.x(row.ends_ms).toFixed(1),
              this.y(all[i][n], isRight).toFixed(1),
            ],
      ]);
      for (const each of stretches(points)) {
        if (each.length === 1)
          shapes.push(
            svg('circle', {
              class: kind,
              cx: each[0][0],
              cy: each[0][1],
              r: 2.5,
            }),
          );
        else if (kind === 'area')
          shapes.push(
            svg('polygon', {
              class: 'fill',
              points: [
                [each[0][0], bottom],
                ...each,
                [each.at(-1)[0], bottom],
              ].join(' '),
            }),
          );
        if (each.length > 1)
          shapes.push(svg('polyline', { class: kind, points: each.join(' ') }));
      }
    });
    for (const { ms } of this.group.marksShown())
      shapes.push(
        svg('line', {
          class: 'mark',
          x1: this.x(ms),
          x2: this.x(ms),
          y1: SPACE.top,
          y2: bottom,
        }),
      );
    this.selection = svg('rect', {
      class: 'selection',
      y: SPACE.top,
      height: bottom - SPACE.top,
      width: 0,
    });
    this.reading = svg('g', { class: 'reading' });
    this.picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...shapes, this.selection, this.reading);
    this.picture.setAttribute('aria-label', this.summary(all));
    this.say();
  }

  label(text, attributes) {
    const made = svg('text', attributes);
    made.textContent = text;
    return made;
  }

  summary(all) {
    const { rows, view } = this.group;
    if (!rows.length) return `${this.title}: no data yet`;
    const said = this.series.map(({ name, text }, i) => {
      const known = all[i].filter(value => value != null);
      return known.length
        ? `${name}: ${text(Math.min(...known))} to ${text(Math.max(...known))}, last ${text(known.at(-1))}`
        : `${name}: none`;
    });
    return `${this.title}, ${this.unit}, ${short(view.from)} to ${short(view.until)}. ${said.join('. ')}.`;
  }

  // Shows the values at the cursor, or the last values.
  say() {
    const { rows, at } = this.group;
    const row = at ?? rows.at(-1);
    this.series.forEach(({ of, text }, i) => {
      put(this.values[i], row ? text(of(row)) : 'no data yet');
    });
    const said = row
      ? `${short(row.ends_ms)}: ${this.series.map(({ name, of, text }) => `${name} ${text(of(row))}`).join(', ')}`
      : 'no data yet';
    for (const [name, value] of Object.entries({
      valuemax: Math.max(rows.length - 1, 0),
      valuenow: Math.max(rows.indexOf(row), 0),
      valuetext: said,
    }))
      this.reader.setAttribute(`aria-${name}`, value);
    if (!this.reading) return;
    const shapes = [];
    if (at) {
      const x = this.x(at.ends_ms);
      shapes.push(
        svg('line', {
          x1: x,
          x2: x,
          y1: SPACE.top,
          y2: this.height - SPACE.bottom,
        }),
      );
      for (const { of, kind, isRight } of this.series)
        if (of(at) != null)
          shapes.push(
            svg('circle', {
              class: kind,
              cx: x,
              cy: this.y(of(at), isRight),
              r: 4,
            }),
          );
    }
    this.reading.replaceChildren(...shapes);
  }

  select(from, until) {
    if (!this.selection) return; // never shown, so never drawn
    const [left, right] = [from, until]
      .sort((a, b) => a - b)
      .map(ms => this.x(ms));
    this.selection.setAttribute('x', from == null ? 0 : left);
    this.selection.setAttribute('width', from == null ? 0 : right - left);
  }
}

// Charts with the same range, zoom and cursor. `load(from, until, seconds)` resolves to
// rows of {from_ms, ends_ms, …}, oldest first. `update` gets the rows of the last hour.
export class Charts {
  constructor(charts, load, ranges = RANGES) {
    Object.assign(this, {
      load,
      rows: [],
      recent: [],
      marks: [],
      span: HOUR,
      event: null,
      zoomed: null,
      at: null,
      view: null,
      turn: 0,
    });
    this.element = make('div', 'charts');
    const bar = make('div', 'row ranges');
    bar.setAttribute('role', 'group');
    bar.setAttribute('aria-label', 'Range');
    this.ranges = [...ranges, ['Event', null]].map(([text, span]) => {
      const made = button(text, () => {
        Object.assign(this, { span, zoomed: null });
        this.show();
      });
      return [made, span];
    });
    this.back = button('Reset zoom', () => {
      this.reset();
      this.ranges.find(([, span]) => span === this.span)[0].focus();
    });
    bar.append(...this.ranges.map(([made]) => made), this.back);
    this.line = make('p', 'readout');
    this.note = make(
      'p',
      'hint',
      `Times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}. Drag to zoom. Arrow keys read, + and − zoom, Escape goes back.`,
    );
    this.charts = charts.map(each => new Chart(each, this));
    this.flags = make('div', 'flags');
    this.charts[0].plot.append(this.flags);
    const grid = make('div', 'grid');
    grid.append(...this.charts.map(chart => chart.element));
    this.element.append(bar, this.line, grid, this.note, this.tabled());
    this.bar();
  }

  // Updates the last hour and the marks {ms, text}. `event` {from, until} is a further range.
  update({ rows, marks, event }) {
    const isNew =
      rows.at(-1)?.ends_ms !== this.recent.at(-1)?.ends_ms ||
      JSON.stringify([marks, event]) !== this.known;
    Object.assign(this, {
      recent: rows,
      marks,
      event,
      known: JSON.stringify([marks, event]),
    });
    if (event === null && this.span === null) this.span = HOUR;
    if (isNew) this.show();
  }

  // Returns the zoom, or else the range up to the last sample or a mark just after that sample.
  wanted() {
    const sampled = this.recent.at(-1)?.ends_ms ?? Date.now();
    const last = Math.max(
      sampled,
      ...this.marks.map(({ ms }) => ms).filter(ms => ms < sampled + 2 * MINUTE),
    );
    if (this.zoomed) return this.zoomed;
    if (this.span !== null) return { from: last - this.span, until: last };
    return {
      from: Math.max(this.event.from, last - 24 * HOUR),
      until: Math.min(this.event.until ?? last, last),
    };
  }

  async show() {
    const wanted = this.wanted(),
      turn = ++this.turn;
    const seconds = wanted.until - wanted.from <= FINE ? 60 : 300;
    const isRecent =
      this.recent.length > 0 &&
      wanted.from >= this.recent.at(-1).ends_ms - HOUR;
    this.bar();
    let rows = this.recent;
    // A long range is loaded again when it has a further step.
    const { last } = this;
    const isKnown =
      last &&
      last.from - wanted.from <= 0 &&
      last.seconds === seconds &&
      wanted.from - last.from < 1000 * seconds &&
      wanted.until - last.until < 1000 * seconds;
    if (!isRecent) {
      try {
        rows = isKnown
          ? last.rows
          : await this.load(wanted.from, wanted.until, seconds);
      } catch (error) {
        if (turn === this.turn) this.say(error.message);
        return;
      }
      if (turn !== this.turn) return;
      if (!isKnown) this.last = { ...wanted, seconds, rows };
    }
    this.step = isRecent ? MINUTE : seconds * 1000;
    this.rows = rows.filter(
      row => row.ends_ms > wanted.from && row.ends_ms <= wanted.until,
    );
    // The range begins with the first sample.
    const first = this.rows[0]?.from_ms ?? wanted.until - SHORTEST;
    this.view = {
      from: Math.max(wanted.from, Math.min(first, wanted.until - SHORTEST)),
      until: wanted.until,
    };
    if (this.at) this.at = this.near(this.at.ends_ms);
    this.draw();
  }

  draw() {
    for (const chart of this.charts) chart.draw();
    this.flag();
    this.say();
    if (this.details.open) this.fill();
  }

  // Returns true if there is a gap in the samples before this row.
  isGap(row) {
    const isOld =
      this.recent.length &&
      this.recent.at(-1).ends_ms - row.from_ms > FINE - 2 * COARSE;
    return (
      row.ends_ms - row.from_ms > 1.5 * Math.max(this.step, isOld ? COARSE : 0)
    );
  }

  marksShown() {
    return this.marks
      .filter(
        ({ ms }) => this.view && ms >= this.view.from && ms <= this.view.until,
      )
      .sort((a, b) => a.ms - b.ms);
  }

  near(ms) {
    return this.rows.reduce(
      (best, row) =>
        best && Math.abs(best.ends_ms - ms) <= Math.abs(row.ends_ms - ms)
          ? best
          : row,
      null,
    );
  }

  read(ms) {
    this.at = ms == null ? null : this.near(ms);
    for (const chart of this.charts) chart.say();
    this.say();
  }

  select(from, until) {
    for (const chart of this.charts) chart.select(from, until);
  }

  zoom(from, until) {
    const { at } = this;
    [from, until] = [Math.min(from, until), Math.max(from, until)];
    const more = Math.max(0, SHORTEST - (until - from)) / 2;
    this.zoomed = { from: from - more, until: until + more };
    this.at = at;
    this.show();
  }

  reset() {
    this.zoomed = null;
    this.show();
  }

  // Handles a key. Returns true if the key has a function here.
  key(name) {
    const last = this.rows.length - 1;
    const i = this.at ? this.rows.indexOf(this.at) : last;
    const to = {
      ArrowLeft: this.at ? i - 1 : i,
      ArrowRight: i + 1,
      PageDown: i - 10,
      PageUp: i + 10,
      Home: 0,
      End: last,
    }[name];
    if (to !== undefined)
      this.read(this.rows[Math.min(last, Math.max(0, to))]?.ends_ms);
    else if (name === 'Escape' && (this.zoomed || this.at)) {
      if (this.zoomed) this.reset();
      this.read(null);
    } else if ('+=-'.includes(name) && this.view) {
      const half =
        (this.view.until - this.view.from) * (name === '-' ? 1 : 0.25);
      const middle = this.at?.ends_ms ?? (this.view.from + this.view.until) / 2;
      if (name !== '-') this.zoom(middle - half, middle + half);
      else if (this.zoomed)
        this.zoom(
          middle - half,
          Math.min(middle + half, this.recent.at(-1)?.ends_ms ?? Infinity),
        );
    } else return false;
    return true;
  }

  bar() {
    for (const [made, span] of this.ranges) {
      made.setAttribute(
        'aria-pressed',
        String(!this.zoomed && span === this.span),
      );
      if (span === null) made.hidden = !this.event;
    }
    this.back.hidden = !this.zoomed;
  }

  say(problem = '') {
    if (problem) return put(this.line, problem);
    if (!this.rows.length)
      return put(
        this.line,
        this.view ? 'No data here. The first minute is shown after two.' : '',
      );
    const row = this.at ?? this.rows.at(-1);
    const near = this.marksShown()
      .filter(({ ms }) => ms > row.from_ms && ms <= row.ends_ms)
      .map(({ text }) => text);
    put(
      this.line,
      [
        this.at
          ? `${short(row.from_ms)} to ${clock(row.ends_ms).slice(0, 5)}`
          : `Last minute measured: ${short(row.ends_ms)}`,
        ...(this.at ? near : []),
      ].join(' · '),
    );
  }

  // Marks that would overlap share a flag.
  flag() {
    const [chart] = this.charts,
      groups = [];
    for (const mark of chart.width ? this.marksShown() : []) {
      const x = chart.x(mark.ms);
      if (groups.length && x - groups.at(-1).x < FLAG)
        groups.at(-1).marks.push(mark);
      else groups.push({ x, marks: [mark] });
    }
    const key = JSON.stringify(groups);
    if (this.flags.dataset.key === key) return;
    this.flags.dataset.key = key;
    this.flags.replaceChildren(
      ...groups.map(({ x, marks }) => {
        const said = marks.map(({ ms, text }) => `${short(ms)} ${text}`);
        const made = button('', () => this.read(marks[0].ms));
        made.className = x > chart.width / 2 ? 'flag left' : 'flag';
        made.style.insetInlineStart = `${x - FLAG / 2}px`;
        made.append(
          make('span', 'pole', marks.length > 1 ? String(marks.length) : '⚑'),
          make('span', 'tip', said.slice(-6).join('\n')),
        );
        made.setAttribute('aria-label', said.join('. '));
        return made;
      }),
    );
  }

  tabled() {
    this.details = make('details');
    const box = make('div', 'scroll');
    this.table = make('table');
    for (const [name, value] of Object.entries({
      role: 'region',
      tabindex: 0,
      'aria-label': 'All charts as a table',
    }))
      box.setAttribute(name, value);
    box.append(this.table);
    this.details.append(make('summary', '', 'Show as table'), box);
    this.details.addEventListener('toggle', () => {
      if (this.details.open) this.fill();
    });
    return this.details;
  }

  // The latest mark comes first.
  fill() {
    const series = this.charts
      .filter(({ element }) => !element.hidden)
      .flatMap(chart =>
        chart.series.map(each => ({
          ...each,
          unit: each.isRight ? 'response time' : chart.unit.split(';')[0],
        })),
      );
    const cells = (name, texts) => {
      const row = make('tr');
      row.append(
        ...texts.map((text, i) => {
          const cell = make(i && name === 'td' ? 'td' : 'th', '', text);
          if (cell.localName === 'th')
            cell.scope = name === 'td' ? 'row' : 'col';
          return cell;
        }),
      );
      return row;
    };
    const head = make('thead'),
      body = make('tbody');
    head.append(
      cells('th', [
        'Until',
        ...series.map(({ name, unit }) => `${name}, ${unit}`),
      ]),
    );
    body.append(
      ...[...this.rows]
        .reverse()
        .map(row =>
          cells('td', [
            short(row.ends_ms),
            ...series.map(({ of, text }) => text(of(row))),
          ]),
        ),
    );
    this.table.replaceChildren(head, body);
  }
}
