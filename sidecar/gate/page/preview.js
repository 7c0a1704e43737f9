'use strict';
{
  // A preview loads this before the waiting page's own script, whose requests it answers.
  const { answers, about, texts, leaves, scheme } = JSON.parse(
    document.getElementById('preview').textContent,
  );
  const opened = Date.now();
  const iso = seconds =>
    seconds == null ? null : new Date(opened + seconds * 1000).toISOString();
  const reply = document =>
    new Response(JSON.stringify(document), {
      headers: { 'Content-Type': 'application/json' },
    });
  const wait = setTimeout;
  let requests = 0;

  window.fetch = async address => {
    const [, text] = /\/i18n\/([\w-]+)\.json$/.exec(address) || [];
    if (text) return reply(texts[text] || {});
    if (address.endsWith('/about')) return reply(about);
    const answer = answers[Math.min(requests++, answers.length - 1)];
    if (!answer) return new Promise(() => {});
    if (typeof answer === 'string') throw new TypeError(answer);
    return reply({
      ...answer,
      joined_at: iso(0),
      updated_at: new Date().toISOString(),
      opens_at: iso(answer.opens_at),
      prequeue_from: iso(answer.prequeue_from),
      ...(address.endsWith('/leave') && { state: 'not_queued' }),
    });
  };
  navigator.sendBeacon = () => true;
  // The page of a called visitor would leave for the requested address.
  if (answers[0] && answers[0].state === 'admitted')
    window.setTimeout = () => 0;

  function leave() {
    if (document.getElementById('number')?.textContent)
      document.getElementById('leave').click();
    else wait(leave, 20);
  }
  if (leaves) addEventListener('load', leave);

  // Shows the light or dark scheme, whichever the browser prefers.
  function paint() {
    document.documentElement.style.colorScheme = scheme;
    for (const sheet of document.styleSheets) {
      for (const { media } of sheet.cssRules) {
        if (media)
          media.mediaText = media.mediaText.replace(
            /\(prefers-color-scheme: (\w+)\)/g,
            (_, each) =>
              each === scheme ? '(min-width: 0)' : '(max-width: 0)',
          );
      }
    }
  }
  if (scheme) addEventListener('load', paint);
}
