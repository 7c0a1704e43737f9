// The views of the page. The URL's hash names the view that is shown, as in #/rooms/sale.

import { make } from './draw.js';

const list = document.querySelector('#views ul');
const views = new Map();
let current = null,
  isBegun = false,
  last = null;

// `root` is shown while the hash names `path`. `open(name, part)` starts what the view needs, with
// null where the hash has no name or part, as in #/rooms/sale/VISITOR, and returns the heading to focus or nothing. `close()` stops it. With
// `isListed` the bar at the top has a link to the view; with `isLast` the link is the last one.
// Returns that link's item.
export function register({
  path,
  title,
  root,
  open,
  close,
  isListed = true,
  isLast = false,
}) {
  const item = make('li'),
    link = make('a', '', title);
  link.href = `#/${path}`;
  item.append(link);
  item.hidden = !isListed;
  list.insertBefore(item, last);
  if (isLast) last = item;
  views.set(path, { path, title, root, open, close, link });
  if (isBegun) follow();
  return item;
}

// Starts the views, after all that are known from the start were registered.
export function begin() {
  isBegun = true;
  follow();
}

export const isOpen = path => current?.path === path;

// Sets the title of the browser's tab.
export const title = () => current?.name ?? current?.title ?? '';

// Opens the view that the hash names, or the overview if there is no such view yet.
function named() {
  const [path, name, part] = location.hash
    .replace(/^#\/?/, '')
    .split('/')
    .map(text => {
      try {
        return decodeURIComponent(text);
      } catch {
        return text;
      }
    });
  return views.has(path)
    ? [path, name || null, part || null]
    : ['', null, null];
}

function follow() {
  const [path, name, part] = named();
  if ([path, name, part].every((text, i) => current?.address[i] === text))
    return;
  const isFirst = !current;
  current?.close();
  current?.link.removeAttribute('aria-current');
  const view = views.get(path);
  for (const each of views.values()) each.root.hidden = each !== view;
  current = { ...view, name, address: [path, name, part] };
  view.link.setAttribute('aria-current', 'page');
  list.scrollLeft = view.link.offsetLeft - list.clientWidth / 3; // a phone shows some of the links
  const heading = view.open(name, part) || view.root.querySelector('h1');
  if (isFirst) return;
  scrollTo(0, 0);
  heading?.focus({ preventScroll: true });
}

addEventListener('hashchange', () => {
  if (isBegun) follow();
});
