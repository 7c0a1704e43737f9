// The view of a room's appearance: #/look/sale. Changes are previewed at once, and saved by a
// button.

import { ask, call, request, tell } from './acts.js';
import { make, put } from './draw.js';
import { register } from './views.js';

const root = document.getElementById('look');
const $ = selector => root.querySelector(selector);
const form = $('form'),
  frame = $('iframe'),
  output = $('form output'),
  undo = $('[data-do=undo]');
const NAMES = [
  'site_name',
  'logo',
  'accent',
  'background',
  'font',
  'footer',
  'custom_css',
];
const PAUSE_MS = 300;
let room = null,
  saved = {},
  before = null,
  timer,
  asked = 0;

const field = name => form.elements[name === 'footer' ? 'links' : name];
const choice = name => $(`[data-of=${name}]`).value;

// Converts a setting to the field's value, and back. null becomes ''.
const shown = (name, value) =>
  name === 'footer'
    ? value.map(({ text, address }) => `${text} | ${address}`).join('\n')
    : (value ?? '');
function typed(name) {
  const text = field(name).value.trim();
  if (name !== 'footer') return text;
  return text
    .split('\n')
    .filter(line => line.trim())
    .map(line => {
      const at = line.lastIndexOf('|');
      return {
        text: line.slice(0, Math.max(0, at)).trim(),
        address: line.slice(at + 1).trim(),
      };
    });
}
const isChanged = name =>
  field(name).value.trim() !== shown(name, saved.settings[name]).trim();

async function load() {
  const mine = room;
  const found = await call('GET', `/${encodeURIComponent(room)}`);
  if (room !== mine) return;
  saved = found;
  for (const name of NAMES)
    field(name).value = shown(name, saved.settings[name]);
  preview();
}

const later = () => {
  clearTimeout(timer);
  timer = setTimeout(preview, PAUSE_MS);
};

// Checks the settings first, because a frame does not show why its page did not load.
async function preview() {
  clearTimeout(timer);
  if (!saved.settings) return;
  const turn = ++asked,
    fields = new URLSearchParams();
  for (const name of NAMES) {
    const value = typed(name);
    if (isChanged(name))
      fields.set(
        name,
        typeof value === 'string' ? value : JSON.stringify(value),
      );
  }
  const query = new URLSearchParams({
    room,
    state: choice('state'),
    language: choice('language'),
    scheme: choice('scheme'),
  });
  const address = `/dashboard/preview?${query}`;
  let errors = [];
  try {
    const reply = await fetch(address, {
      method: 'POST',
      body: fields,
      signal: AbortSignal.timeout(10000),
    });
    if (reply.status === 401) return location.reload(); // logged out meanwhile
    if (!reply.ok) {
      const document = await reply.json();
      errors = document.errors || [document.detail || document.title];
    }
  } catch {
    errors = ['The replica does not answer.'];
  }
  if (turn !== asked) return;
  refuse(errors);
  if (!errors.length) send(address, fields);
  swatches();
}

// Loads the preview by a separate form, with the replica's names of the fields.
function send(address, fields) {
  const sent = make('form');
  Object.assign(sent, {
    method: 'post',
    action: address,
    target: frame.name,
    hidden: true,
  });
  for (const [name, value] of fields) {
    const input = make('textarea');
    Object.assign(input, { name, value });
    sent.append(input);
  }
  root.append(sent);
  sent.submit();
  sent.remove();
}

function refuse(errors) {
  for (const name of NAMES) {
    const isWrong = errors.some(error => error.startsWith(name));
    field(name).setAttribute('aria-invalid', String(isWrong));
    field(name).setAttribute('aria-describedby', isWrong ? 'look-wrong' : '');
  }
  $('.wrong').replaceChildren(...errors.map(error => make('li', '', error)));
}

// The picker beside a colour shows the colour if it is in the picker's format.
function swatches() {
  for (const each of root.querySelectorAll('.pick')) {
    const [text, picker] = each.querySelectorAll('input');
    const value = text.value.trim() || text.placeholder;
    if (/^#[\da-f]{6}$/i.test(value)) picker.value = value;
  }
}
for (const each of root.querySelectorAll('.pick')) {
  const [text, picker] = each.querySelectorAll('input');
  picker.addEventListener('input', () => {
    text.value = picker.value;
    later();
  });
}

async function change(values, said) {
  const were = Object.fromEntries(
    Object.keys(values).map(name => [name, saved.changed[name] ?? null]),
  );
  await call('PATCH', `/${encodeURIComponent(room)}`, values);
  before = were;
  await load();
  undo.hidden = false;
  return said;
}

const act = how =>
  tell(output, async () => {
    if (!saved.settings)
      throw new Error('The settings of the room have not come yet.');
    return how();
  });
form.addEventListener('submit', event => {
  event.preventDefault();
  act(async () => {
    const values = Object.fromEntries(
      NAMES.filter(isChanged).map(name => [name, typed(name) || null]),
    );
    if (!Object.keys(values).length) return 'Nothing has changed.';
    return change(
      values,
      'Saved. Visitors who open the page see it within 10 seconds.',
    );
  });
});
undo.addEventListener('click', () =>
  act(async () => {
    const said = await change(before, 'Undone. Undo again brings it back.');
    undo.focus();
    return said;
  }),
);
$('[data-do=file]').addEventListener('click', () =>
  act(async () => {
    const names = NAMES.filter(name => name in saved.changed);
    if (!names.length) return 'Nothing differs from the settings file.';
    return (
      (await ask({
        title: `Reset the look of ${room}?`,
        go: 'Reset',
        text: `These are as in the settings file again: ${names.join(', ')}.`,
      })) &&
      change(
        Object.fromEntries(names.map(name => [name, null])),
        'All is as in the settings file.',
      )
    );
  }),
);
form.addEventListener('input', later);
$('.shown').addEventListener('change', () => {
  fit();
  preview();
});

// Scales a laptop's page down, so that the whole page is visible.
const HEIGHT = 704;
function fit() {
  const box = $('.window'),
    width = Number(choice('width'));
  const share = Math.min(1, box.parentElement.clientWidth / width);
  frame.style.inlineSize = `${width}px`;
  frame.style.blockSize = `${HEIGHT / share}px`;
  frame.style.transform = `scale(${share})`;
  box.style.inlineSize = `${width * share}px`;
}
addEventListener('resize', () => {
  if (room !== null) fit();
});

// Loads the languages of the page's folder once.
async function languages() {
  const list = $('[data-of=language]'),
    names = new Intl.DisplayNames('en', { type: 'language' });
  if (list.length) return;
  const tags = await request('GET', '/dashboard/preview/languages');
  list.replaceChildren(
    ...tags.map(tag => {
      const option = make('option', '', names.of(tag));
      Object.assign(option, { value: tag, selected: tag === 'en' });
      return option;
    }),
  );
}

register({
  path: 'look',
  title: 'Look',
  root,
  isListed: false,
  open: name => {
    room = name ?? '';
    saved = {}; // the values are another room's
    put($('h1'), `Look of ${room}`);
    $('.back-to').href = `#/rooms/${encodeURIComponent(room)}`;
    document.title = `Look of ${room} – Waitroom`;
    undo.hidden = true;
    requestAnimationFrame(fit); // the frame has a width only once it is shown
    tell(output, async () => {
      await languages();
      if (room) await load();
      return null;
    });
    return $('h1');
  },
  close: () => {
    clearTimeout(timer);
    asked++;
    room = null;
  },
});
