// Renews the session while its visitor types or scrolls, because filling in a long form sends no
// requests. A page of the site loads it: <script src="/_waitroom/ROOM/keep.js" defer></script>
// The server puts `const { address, every, most }` before it: the address to request, the interval
// and the longest time, both in milliseconds.
const opened = performance.now();
let renewed = opened;
const renew = () => {
  const now = performance.now();
  if (now - renewed < every || now - opened > most) return;
  renewed = now;
  fetch(address, { headers: { Accept: 'application/json' }, cache: 'no-store' })
    .then(reply => reply.text())
    .catch(() => {}); // an unread response would keep the connection busy
};
for (const type of ['input', 'keydown', 'pointerdown', 'scroll'])
  addEventListener(type, renew, { capture: true, passive: true });
