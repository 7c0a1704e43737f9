// Renews the session while its visitor types or scrolls, because filling in a long form sends no
// requests. A page of the site loads it: <script src="/_waitroom/ROOM/keep.js" defer></script>
// The server puts `const { address, intervalMs, maxMs }` before this script: the address to
// request, the time between two requests, and the time after which the script sends no more.
const opened = performance.now();
let renewed = opened;
const renew = () => {
  const now = performance.now();
  if (now - renewed < intervalMs || now - opened > maxMs) return;
  renewed = now;
  fetch(address, { headers: { Accept: 'application/json' }, cache: 'no-store' })
    .then(reply => reply.text())
    .catch(() => {}); // the response is read, because an unread one keeps the connection busy
};
for (const type of ['input', 'keydown', 'pointerdown', 'scroll'])
  addEventListener(type, renew, { capture: true, passive: true });
