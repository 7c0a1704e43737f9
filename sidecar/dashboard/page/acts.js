// What the controls do: calls to the replica, and the questions before them.

import { make, put } from './draw.js';
import { Question } from './question.js';

export const session = {
  csrf: '',
  history: false,
  jobs: false,
  role: 'viewer',
};
const ROLES = ['viewer', 'operator', 'admin'];

// Whether the operator's role is enough. Markup says it by data-needs (dashboard.css).
export const may = needed =>
  ROLES.indexOf(session.role) >= ROLES.indexOf(needed);

// A call about rooms.
export const call = (method, path, body) =>
  request(method, `/admin/rooms${path}`, body);

const UNDO_S = 60;
const NOT_KNOWN =
  'It is not known whether this was done. Look at the figures and the log before you try again.';

// The call's document. Throws an Error with what happened and what to do, the problem's title, and
// its status if there is one; `isUnknown`: it may have been done all the same.
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
  const text = [document.title, ...lines].filter(Boolean).join(': ');
  throw Object.assign(
    new Error(todo ? `${text}${text.endsWith('.') ? '' : '.'} ${todo}` : text),
    { status: reply.status, title: document.title, isUnknown },
  );
}

// Undoes a change of a room's settings, unless somebody changed them since.
export async function undo(room, revision) {
  await call('POST', `/${room}/undo`, { revision });
  return 'Undone: it is as it was before.';
}

// Runs `act` and says next to the control what came of it: `act` returns a text, or {text, undo},
// or null where the question was answered with no.
export async function tell(output, act) {
  say(output, '', '');
  const slow = setTimeout(() => {
    if (!dialog.open) say(output, 'wait', 'Asking …');
  }, 500);
  try {
    const said = await act();
    clearTimeout(slow);
    if (said == null) return say(output, '', '');
    say(output, 'done', said.text ?? said);
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

// One click takes the change back, for a minute.
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
const wrong = document.getElementById('ask-wrong');
const question = new Question(dialog);
let shown;

// Asks in a dialog: `go` is the button's text; with `label` something is to be typed, which `check`
// finds fault with or returns '' for. `better` resolves to a text that is known later. Resolves to what was typed (true without a label), or null.
export function ask(asked) {
  shown = asked;
  document.getElementById('ask-title').textContent = asked.title;
  document.getElementById('ask-text').textContent = asked.text;
  asked.better?.then(text => {
    if (shown === asked) put(document.getElementById('ask-text'), text);
  });
  yes.textContent = asked.go;
  yes.classList.toggle('danger', Boolean(asked.danger));
  label.hidden = !asked.label;
  label.querySelector('span').textContent = asked.label || '';
  input.value = '';
  wrong.textContent = '';
  const answer = question.open();
  (asked.label ? input : no).focus();
  return answer;
}

no.addEventListener('click', () => question.answer(null));
form.addEventListener('submit', event => {
  event.preventDefault();
  const typed = input.value.trim();
  wrong.textContent = shown.label ? shown.check(typed) : '';
  if (wrong.textContent) input.focus();
  else question.answer(shown.label ? typed : true);
});
