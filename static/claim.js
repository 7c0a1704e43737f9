'use strict';
// Counts down the time for which the call is held, then reloads the page.
{
  const shown = document.querySelector('#held b');
  const ends = shown && Date.now() + shown.dataset.seconds * 1000;
  function tick() {
    const seconds = Math.ceil((ends - Date.now()) / 1000);
    if (seconds < 0) return location.reload();
    shown.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, 0)}`;
    setTimeout(tick, 250);
  }
  if (shown) tick();
}
