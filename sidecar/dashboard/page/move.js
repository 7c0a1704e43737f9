// The dialog for the new place of a visitor, and the reason.

import { make } from './draw.js';
import { Question } from './question.js';

const dialog = document.getElementById('move');
const form = dialog.querySelector('form');
const { to, place, class: name, why } = form.elements;
const wrong = form.querySelector('.note');
const choices = [...form.querySelectorAll('[name=to]')];
const question = new Question(dialog);

// Resolves to the body of the request to /admin/: {position} or {class}, and why; or to null if the
// operator has cancelled.
export function askMove(short, classes) {
  form.reset();
  choices[0].checked = true;
  wrong.textContent = '';
  document.getElementById('move-who').textContent = short;
  const options = [['', 'none'], ...classes.map(each => [each, each])].map(
    ([value, text]) => {
      const option = make('option', '', text);
      option.value = value;
      return option;
    },
  );
  name.replaceChildren(...options);
  const byClass = choices.find(choice => choice.value === 'class');
  name.hidden = byClass.parentElement.hidden = !classes.length;
  if (classes.length) name.value = classes[0];
  const moved = question.open();
  choices[0].focus();
  return moved;
}

function answer() {
  const more = why.value.trim() ? { why: why.value.trim() } : {};
  if (to.value === 'class') return { class: name.value || null, ...more };
  return {
    position: to.value === 'place' ? Number(place.value) : to.value,
    ...more,
  };
}

const choose = value => {
  choices.find(choice => choice.value === value).checked = true;
};
place.addEventListener('input', () => choose('place'));
name.addEventListener('input', () => choose('class'));
form
  .querySelector('button[type=button]')
  .addEventListener('click', () => question.answer(null));
form.addEventListener('submit', event => {
  event.preventDefault();
  const isPlace =
    to.value !== 'place' || /^[1-9]\d{0,7}$/.test(place.value.trim());
  wrong.textContent = isPlace ? '' : 'A place is a whole number from 1 on.';
  if (isPlace) question.answer(answer());
  else place.focus();
});
