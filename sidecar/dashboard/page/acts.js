// The actions of the controls: calls to the replica, and the dialogs before them.

import { make, put } from './draw.js';
import { Question } from './question.js';

export const session = {
  csrf: '',
  history: false,
  jobs: false,
  role: 'viewer',
};
const ROLES = ['viewer', 'operator', 'admin'];

// Returns true if the operator's role is high enough. In HTML, data-needs has the role
// (dashboard.css).
export const may = needed =>
  ROLES.indexOf(session.role) >= ROLES.indexOf(needed);

// Sends a request about rooms to the replica.
export const call = (method, path, body) =>
  request(method, `/admin/rooms${path}`, body);

const UNDO_S = 60;
const NOT_KNOWN =
  'It is not known whether this was done. Look at the figures and the log before you try again.';

// Returns the document of the response. Throws an Error with the reason and the remedy, the
// problem's title, and the HTTP status if there is one. `isUnknown` is true if the replica may have
// made the change all the same.
export async function request(method, address, body) {
  const isChange = method !== 'GET';
  let reply, document;
  try {
    reply = await fetch(address, {
      method,
      cache: 'no-store',
      signal: AbortSignal.timeout(10000),
      headers: {
        'X-Waitroom-CSRF': session.csrf,
        'Content-Type': 'application/json',
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    document = await reply.json();
  } catch {
    const title = 'The replica does not answer';
    throw Object.assign(
      new Error(`${title}.${isChange ? ` ${NOT_KNOWN}` : ''}`),
      { title, isUnknown: isChange },
    );
  }
  if (reply.status === 401) location.reload(); // logged out meanwhile
  if (reply.ok) return document;
  const lines = document.errors || [document.detail];
  const isUnknown = isChange && reply.status >= 500;
  const todo = isUnknown
    ? NOT_KNOWN
    : document.code === 'csrf_wrong'
      ? 'Reload the page, then try again.'
      : '';
  // The lines of an invalid request say what is wrong with it, and its title does not.
  const title = document.errors?.length ? '' : document.title;
  const text = [title, ...lines].filter(Boolean).join(': ');
  throw Object.assign(
    new Error(todo ? `${text}${text.endsWith('.') ? '' : '.'} ${todo}` : text),
    { status: reply.status, title: document.title, isUnknown },
  );
}

// Changes a room's settings. `says` returns a text about the room after the change.
export async function change(room, method, path, body, says) {
  const changed = await call(method, `/${room}${path}`, body);
  return { text: says(changed), undo: () => undo(room, changed.change) };
}

// Undoes a change of a room's settings, unless the settings were changed again since.
export async function undo(room, revision) {
  await call('POST', `/${room}/undo`, { revision });
  return 'Undone: it is as it was before.';
}

// Runs `act` and shows the result next to the control. `act` returns a text, or {text, undo}, or
// {text, isNothing: true} if nothing was done, or null if the operator has cancelled the dialog.
export async function tell(output, act) {
  say(output, '', '');
  const slow = setTimeout(() => {
    if (!dialog.open) say(output, 'wait', 'Asking …');
  }, 500);
  try {
    const said = await act();
    clearTimeout(slow);
    if (said == null) return say(output, '', '');
    say(output, said.isNothing ? 'nothing' : 'done', said.text ?? said);
    if (said.undo) offer(output, said.undo);
  } catch (error) {
    clearTimeout(slow);
    say(output, error.isUnknown ? 'unknown' : 'wrong', error.message);
  }
}

function say(output, kind, text) {
  const mark = { done: '✓ ', wrong: '✗ Not done: ', unknown: '? ' }[kind] || '';
  output.className = kind;
  output.textContent = mark + text;
  const offered = output.nextElementSibling;
  if (offered?.matches('.undo')) offered.remove();
}

// Shows a button for a minute that undoes the change.
function offer(output, how) {
  const row = make('p', 'row undo'),
    button = make('button', '', 'Undo'),
    left = make('span', 'hint');
  button.type = 'button';
  row.append(button, left);
  output.after(row);
  output.tabIndex = -1;
  const until = Date.now() + UNDO_S * 1000;
  const count = () => {
    const seconds = Math.ceil((until - Date.now()) / 1000);
    put(left, `for ${seconds} s`);
    if (seconds > 0 && row.isConnected) return setTimeout(count, 1000);
    if (row.contains(document.activeElement))
      output.focus({ preventScroll: true });
    row.remove();
  };
  count();
  button.addEventListener('click', () => {
    output.focus({ preventScroll: true });
    tell(output, how);
  });
}

const dialog = document.getElementById('ask');
const form = dialog.querySelector('form');
const [no, yes] = form.querySelectorAll('button');
const label = document.getElementById('ask-label');
const input = label.querySelector('input');
const tick = document.getElementById('ask-tick');
const wrong = document.getElementById('ask-wrong');
const question = new Question(dialog);
let shown;

// Opens a dialog. `go` is the button's text, and `stay` that of the other one. With `label` the dialog has a field, whose value
// `check` validates: it returns an error, or ''. `better` resolves to a text that replaces the
// first one. With `tick` it has a checkbox. The focus is on Cancel, unless a value is needed.
// Resolves to the value (true without a label; with a checkbox {isTicked}), or null.
export function ask(asked) {
  shown = asked;
  document.getElementById('ask-title').textContent = asked.title;
  document.getElementById('ask-text').textContent = asked.text;
  asked.better?.then(text => {
    if (shown === asked) put(document.getElementById('ask-text'), text);
  });
  yes.textContent = asked.go;
  no.textContent = asked.stay ?? 'Cancel';
  yes.classList.toggle('danger', Boolean(asked.danger));
  label.hidden = !asked.label;
  label.querySelector('span').textContent = asked.label || '';
  input.value = '';
  tick.hidden = !asked.tick;
  tick.querySelector('span').textContent = asked.tick || '';
  tick.firstElementChild.checked = true;
  wrong.textContent = '';
  const answer = question.open();
  (asked.label && !asked.isOptional ? input : no).focus();
  return answer;
}

no.addEventListener('click', () => question.answer(null));
form.addEventListener('submit', event => {
  event.preventDefault();
  const typed = input.value.trim();
  wrong.textContent = shown.label ? shown.check(typed) : '';
  if (wrong.textContent) input.focus();
  else
    question.answer(
      shown.tick
        ? { isTicked: tick.firstElementChild.checked }
        : shown.label
          ? typed
          : true,
    );
});
