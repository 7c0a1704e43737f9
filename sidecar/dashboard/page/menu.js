// A button that opens a menu. Arrow keys, Home and End move through the menu, Escape closes it, and
// the focus returns to the button.

import { make } from './draw.js';

let open = null;

// `items` has {text, how, isDanger?}.
export function menu(text, label, items) {
  const root = make('div', 'menu'),
    button = make('button', '', text),
    list = make('div', 'items');
  button.type = 'button';
  button.setAttribute('aria-label', label);
  button.setAttribute('aria-haspopup', 'menu');
  button.setAttribute('aria-expanded', 'false');
  list.setAttribute('role', 'menu');
  list.setAttribute('aria-label', label);
  list.hidden = true;
  const made = items.map(({ text: what, how, isDanger }) => {
    const item = make('button', isDanger ? 'danger' : '', what);
    item.type = 'button';
    item.tabIndex = -1;
    item.setAttribute('role', 'menuitem');
    item.addEventListener('click', () => {
      close(true);
      how();
    });
    return item;
  });
  list.append(...made);
  root.append(button, list);

  const close = isFocused => {
    list.hidden = true;
    button.setAttribute('aria-expanded', 'false');
    if (open === close) open = null;
    if (isFocused) button.focus();
  };
  const show = at => {
    open?.(false);
    open = close;
    list.hidden = false;
    button.setAttribute('aria-expanded', 'true');
    made.at(at).focus();
    list.scrollIntoView({ block: 'nearest' });
  };
  button.addEventListener('click', () => {
    if (list.hidden) show(0);
    else close(true);
  });
  button.addEventListener('keydown', event => {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    event.preventDefault();
    show(event.key === 'ArrowDown' ? 0 : -1);
  });
  list.addEventListener('keydown', event => {
    const at = made.indexOf(document.activeElement);
    const to = {
      ArrowDown: (at + 1) % made.length,
      ArrowUp: at - 1,
      Home: 0,
      End: -1,
    }[event.key];
    if (event.key === 'Escape') close(true);
    else if (event.key === 'Tab') return close(false);
    else if (to === undefined) return;
    else made.at(to).focus();
    event.preventDefault();
  });
  root.addEventListener('focusout', event => {
    if (
      !list.hidden &&
      event.relatedTarget &&
      !root.contains(event.relatedTarget)
    )
      close(false);
  });
  return root;
}

document.addEventListener('pointerdown', event => {
  if (open && !event.target.closest('.menu')) open(false);
});
