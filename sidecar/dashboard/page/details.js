// The dialog of a job: the request, the attempts and the result. Clients have sent all of these, so
// that the dialog shows them as text only.

import { request, tell } from './acts.js';
import { copier } from './copy.js';
import { fine, make, number, put } from './draw.js';
import {
  ENDED,
  address,
  cancel,
  kindOf,
  mayCancel,
  mayRetry,
  place,
  retry,
  time,
} from './job.js';

const LOOK_MS = 2000;

const dialog = document.getElementById('job');
const $ = selector => dialog.querySelector(selector);
const output = $('output');
let shown = null,
  timer;

// Opens the dialog with the job from the list. The response's body is loaded after that.
export function showJob(job, target) {
  shown = { job, target, opener: document.activeElement };
  for (const list of dialog.querySelectorAll('.facts')) list.replaceChildren();
  put(output, '');
  put($('h2 code'), job.id);
  fill(job, false);
  dialog.showModal();
  $('h2').focus();
  look();
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) {
    timer = setTimeout(look, LOOK_MS);
    return;
  }
  const asked = shown;
  let isOver = false;
  try {
    const job = await request('GET', address(asked.job.id));
    if (asked !== shown) return;
    fill(job);
    isOver = ENDED.includes(job.state);
    if (output.className === 'away') put(output, '');
  } catch (error) {
    if (asked !== shown) return;
    isOver = error.status === 404;
    output.className = 'away';
    put(
      output,
      isOver
        ? 'It was removed: this is what was known of it.'
        : `${error.title ?? error.message}. This is old. Trying again …`,
    );
  }
  if (!isOver) timer = setTimeout(look, LOOK_MS);
}

// `isWhole` is true if the job includes the response's body. Long bodies are left out.
function fill(job, isWhole = true) {
  shown.job = job;
  put($('.badge'), job.state);
  $('.badge').dataset.kind = kindOf(job);
  put($('.badge + .hint'), place(job));
  const isEnded = ENDED.includes(job.state);
  const query = job.query ? `?${job.query}` : '';
  const when = iso => iso && time(iso);
  facts($('.facts'), [
    ['Target', `${job.target}, ${job.kind}`],
    [
      'Request',
      job.kind === 'online' ? null : `${job.method} ${job.path}${query}`,
    ],
    ['Owner', job.owner],
    ['Class', job.class],
    ['Tries', number(job.attempts)],
    ['HTTP status', job.status && String(job.status)],
    ['Error', job.error],
    ['Created', time(job.created_at)],
    ['Called', when(job.called_at)],
    ['Begun', when(job.started_at)],
    ['Ended', job.ended_at && took(job)],
    [isEnded ? 'Kept until' : 'Gives up', time(job.expires_at)],
  ]);
  answer(job, isWhole);
  for (const [name, is] of [
    ['retry', mayRetry(job)],
    ['cancel', mayCancel(job, shown.target.state.settings)],
  ]) {
    const button = $(`[data-do=${name}]`);
    if (!is && document.activeElement === button) $('[data-do=close]').focus();
    button.hidden = !is;
  }
}

function took({ started_at: began, ended_at: ended }) {
  const seconds = began ? (Date.parse(ended) - Date.parse(began)) / 1000 : null;
  return seconds == null
    ? time(ended)
    : `${time(ended)}, after ${fine(seconds)}`;
}

function answer({ id, result }, isWhole) {
  $('.answer').hidden = !result;
  if (!result) return;
  facts($('.answer .facts'), [
    ['Status', String(result.status)],
    ['Bytes', number(result.size)],
    ...Object.entries(result.headers),
  ]);
  const body = $('pre');
  body.hidden = !result.body;
  if (body.textContent !== (result.body ?? ''))
    body.textContent = result.body ?? '';
  put($('.answer > .hint'), bodyless(result, isWhole));
  const link = $('.answer a');
  link.href = `${address(id)}/body`;
  link.download = id;
  link.parentElement.hidden = !result.size;
}

// Returns the reason why no body is shown.
function bodyless(result, isWhole) {
  if (!isWhole || result.body) return '';
  if (!result.size) return 'It has no body.';
  return 'body_base64' in result
    ? 'Its body is no text.'
    : 'Its body is too long for this page.';
}

// Leaves out elements that are null. Elements that are there already stay, so that a selection of
// text is kept.
function facts(list, pairs) {
  const known = pairs.filter(([, text]) => text != null && text !== '');
  known.forEach(([name, text], i) => {
    let box = list.children[i];
    if (box?.firstElementChild.textContent !== name) {
      box = make('div');
      box.append(make('dt', '', name), make('dd'));
      if (list.children[i]) list.children[i].replaceWith(box);
      else list.append(box);
    }
    put(box.lastElementChild, text);
  });
  while (list.children.length > known.length) list.lastElementChild.remove();
}

for (const [name, how] of [
  ['retry', retry],
  ['cancel', cancel],
]) {
  $(`[data-do=${name}]`).addEventListener('click', () =>
    tell(output, async () => {
      const { job, target } = shown;
      const said = await how(job);
      if (said && shown?.job.id === job.id) look();
      if (said) target.refresh();
      return said;
    }),
  );
}
$('h2').append(copier($('h2 code')));
$('[data-do=close]').addEventListener('click', () => dialog.close());
dialog.addEventListener('close', () => {
  clearTimeout(timer);
  if (!shown?.opener?.isConnected) shown?.target.jobs.state.focus();
  shown = null;
});
