// An id with a button that copies it.

import { make, svg } from './draw.js';

const COPIED_MS = 2000;

// Returns an element with the id, shortened by its style, and the button.
export function copyable(id) {
  const box = make('span', 'copyable'),
    code = make('code', 'id', id);
  code.title = id;
  box.append(code, copier(code));
  return box;
}

// Returns a button that copies the text of an element.
export function copier(element) {
  const button = make('button', 'copy');
  button.type = 'button';
  const picture = svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' });
  picture.append(
    svg('path', { d: 'M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3' }),
    svg('path', { class: 'tick', d: 'M3 8.5l3.5 3.5L13 4.5' }),
  );
  button.append(picture);
  const label = text => {
    button.setAttribute('aria-label', text);
    button.title = text;
  };
  label('Copy the id');
  button.addEventListener('click', async () => {
    await write(element);
    button.classList.add('copied');
    label('Copied');
    setTimeout(() => {
      button.classList.remove('copied');
      label('Copy the id');
    }, COPIED_MS);
  });
  return button;
}

// Browsers have no clipboard on pages without TLS: then the text is selected and copied.
async function write(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand('copy');
  }
}
