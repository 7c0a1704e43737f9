// The list of alerts, with the meaning and the remedy of each from the alerts of Prometheus.

import { duration, make, moment, number, put } from './draw.js';

const strip = document.getElementById('alerts');
const list = strip.querySelector('ul');
const spoken = strip.querySelector('[role=status]');
const items = new Map();
const PATHS = {
  room: 'rooms',
  limit: 'limits',
  target: 'targets',
  webhook: 'webhooks',
};
let texts = null,
  isRead = false,
  known = new Set();

async function read() {
  isRead = true;
  try {
    texts = (
      await (
        await fetch('/dashboard/static/alerts.json', {
          signal: AbortSignal.timeout(5000),
        })
      ).json()
    ).alerts;
  } catch {
    isRead = false; // the next event tries again
  }
}

// Shows one item for each alert, even if the alert is about several rooms.
export function show(firing) {
  if (!isRead) read();
  strip.querySelector('.quiet').hidden = firing.length > 0;
  if (!texts) return;
  const found = grouped(firing);
  for (const [alert, item] of items) {
    if (found.has(alert)) continue;
    item.remove();
    items.delete(alert);
  }
  let at = list.firstElementChild;
  for (const [alert, all] of found) {
    let item = items.get(alert);
    if (!item) items.set(alert, (item = build(all[0])));
    fill(item, all);
    if (item === at) at = at.nextElementSibling;
    else list.insertBefore(item, at);
  }
  speak(firing);
}

function grouped(firing) {
  const found = new Map();
  for (const each of firing)
    found.set(each.alert, [...(found.get(each.alert) ?? []), each]);
  return found;
}

// Announces each new alert once, and the end of the last alert.
function speak(firing) {
  const fresh = firing.filter(each => !known.has(key(each)));
  if (fresh.length)
    put(
      spoken,
      `${fresh.length === 1 ? 'New alert' : `${fresh.length} new alerts`}: ${filled('summary', fresh[0])}`,
    );
  else if (!firing.length && known.size) put(spoken, 'All alerts are over.');
  known = new Set(firing.map(key));
}

const key = ({ alert, kind, name, event }) =>
  [alert, kind, name, event].join(' ');

function filled(which, { alert, kind, name, event, value }) {
  const values = {
    [kind]: name,
    event,
    value: value >= 10 ? number(value) : String(Math.round(10 * value) / 10),
    duration: duration(value),
    job: 'Waitroom',
  };
  return texts[alert][which].replace(
    /{(\w+)}/g,
    (whole, word) => values[word] ?? whole,
  );
}

function build({ alert, severity }) {
  const item = make('li'),
    details = make('details'),
    head = make('summary'),
    body = make('div'),
    remedy = make('p');
  item.dataset.severity = severity;
  head.append(
    make('span', 'severity', severity),
    make('strong'),
    make('span', 'others'),
    ' ',
    make('time'),
  );
  remedy.append(make('strong', '', 'What to do: '), make('span', 'remedy'));
  body.append(
    make('p', 'meaning'),
    remedy,
    make('p', 'links row'),
    make('p', 'hint', `${alert} in docs/alerts.md`),
  );
  details.append(head, body);
  item.append(details);
  return item;
}

function fill(item, all) {
  const [first] = all,
    $ = selector => item.querySelector(selector);
  put($('summary strong'), filled('summary', first));
  put($('.others'), all.length > 1 ? `and ${number(all.length - 1)} more` : '');
  put(
    $('time'),
    `since ${moment(Math.min(...all.map(each => each.since_ms)))}`,
  );
  put($('.meaning'), filled('meaning', first));
  put($('.remedy'), filled('remedy', first));
  const names = [
    ...new Set(all.filter(each => PATHS[each.kind]).map(each => each.name)),
  ];
  const links = $('.links');
  if (links.dataset.names === names.join()) return;
  links.dataset.names = names.join();
  links.replaceChildren(
    ...names.map(name => {
      const link = make('a', '', `Open ${name}`);
      link.href = `#/${PATHS[first.kind]}/${encodeURIComponent(name)}`;
      return link;
    }),
  );
}
