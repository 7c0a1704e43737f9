// Formats figures, and creates elements.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const NONE = '–';

export const number = n => (n == null ? NONE : whole.format(n));
export const rate = n =>
  n == null ? NONE : (n < 10 ? tenths : whole).format(n);
export const clock = ms => new Date(ms).toLocaleTimeString('en-GB');

export function duration(seconds) {
  if (seconds == null) return NONE;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h${minutes % 60 ? ` ${minutes % 60} min` : ''}`;
}

// Formats a time, with the day if that is not today.
export function moment(ms) {
  const then = new Date(ms);
  const day =
    then.toDateString() === new Date().toDateString()
      ? ''
      : `${then.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} `;
  return day + clock(ms);
}

// Formats a day and the time to the minute, with the year if that is not this year.
export function date(ms) {
  const then = new Date(ms);
  const year =
    then.getFullYear() === new Date().getFullYear() ? {} : { year: 'numeric' };
  const day = then.toLocaleDateString('en-GB', {
    weekday: 'short',
    day: 'numeric',
    month: 'short',
    ...year,
  });
  return `${day}, ${clock(ms).slice(0, 5)}`;
}

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function make(name, className = '', text = '') {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

export function svg(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes))
    element.setAttribute(key, value);
  return element;
}

// Formats seconds with a few digits: 0.042 s, 1.3 s, 12 s, 4 min.
export function fine(seconds) {
  if (seconds == null) return NONE;
  if (seconds >= 10) return duration(seconds);
  return `${seconds >= 1 ? seconds.toFixed(1) : seconds.toFixed(seconds >= 0.1 ? 2 : 3)} s`;
}
