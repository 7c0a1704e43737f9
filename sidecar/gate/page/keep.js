// Renews the session while its visitor types or scrolls, since a long form asks for no page. One
// line in the site's pages: <script src="/_waitroom/ROOM/keep.js" defer></script>
// Before it stands `const { address, every, most }`: where to ask, and milliseconds.
const opened = performance.now();
let asked = opened;
const renew = () => {
  const now = performance.now();
  if (now - asked < every || now - opened > most) return;
  asked = now;
  fetch(address, { headers: { Accept: 'application/json' }, cache: 'no-store' })
    .then(reply => reply.text())
    .catch(() => {}); // what is not read keeps the connection
};
for (const type of ['input', 'keydown', 'pointerdown', 'scroll'])
  addEventListener(type, renew, { capture: true, passive: true });
