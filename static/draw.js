'use strict';
{
  // Shows and checks a lottery draw in the browser, by the rules of docs/draw.md.
  const room = location.pathname.split('/')[2];
  const asked = new URLSearchParams(location.search);
  const event = asked.get('event'),
    own = asked.get('id');
  const PAGE = 10000; // places in one request; a draw of at most this size is checked automatically
  const SLICE = 500; // lots computed before the page handles other events

  const $ = id => document.getElementById(id);
  const put = (id, text) => {
    $(id).textContent = text;
  };
  const number = n => n.toLocaleString('en');
  const when = text =>
    new Date(text).toLocaleString('en-GB', {
      dateStyle: 'medium',
      timeStyle: 'long',
    });
  const pause = ms => new Promise(done => setTimeout(done, ms));

  async function ask(address) {
    const response = await fetch(address, {
      headers: { Accept: 'application/json' },
      cache: 'no-store',
    });
    const document = await response.json().catch(() => ({}));
    if (response.ok) return document;
    throw Object.assign(
      new Error(document.detail || document.title || `HTTP ${response.status}`),
      { status: response.status },
    );
  }

  // The arithmetic ---------------------------------------------------------------------------------

  const bytes = text => new TextEncoder().encode(text);
  const sha256 = async text =>
    Array.from(
      new Uint8Array(await crypto.subtle.digest('SHA-256', bytes(text))),
      byte => byte.toString(16).padStart(2, '0'),
    ).join('');

  // The first 50 bits of the HMAC, for each id.
  async function computeLots(secret, ids, tell) {
    const key = await crypto.subtle.importKey(
      'raw',
      bytes(secret),
      { name: 'HMAC', hash: 'SHA-256' },
      false,
      ['sign'],
    );
    const one = async id => {
      const view = new DataView(
        await crypto.subtle.sign('HMAC', key, bytes(id)),
      );
      return view.getUint32(0) * 2 ** 18 + (view.getUint32(4) >>> 14);
    };
    const found = [];
    for (let at = 0; at < ids.length; at += SLICE) {
      found.push(...(await Promise.all(ids.slice(at, at + SLICE).map(one))));
      tell(found.length);
      await pause(0);
    }
    return found;
  }

  // The checks in order: [result, name, what the check shows or its first error].
  async function* verify(draw, places, noted, tell) {
    const rows = [...places].sort((a, b) => a[1] - b[1]);
    const ids = rows.map(([id]) => id);

    const commitment = await sha256(draw.secret);
    yield commitment === draw.commitment
      ? [
          true,
          'The secret is the one that was committed to',
          'Its SHA-256 is the commitment: nobody has changed it since that was published.',
        ]
      : [
          false,
          'The secret is another',
          `Its SHA-256 is ${commitment}, and that is not the commitment.`,
        ];
    if (noted && noted.before) {
      yield noted.commitment === draw.commitment
        ? [
            true,
            'The commitment is the one that this browser saw',
            `On ${when(noted.at)}, before the opening.`,
          ]
        : [
            false,
            'The commitment is another',
            `On ${when(noted.at)} this browser saw ${noted.commitment}.`,
          ];
    }

    const seen = new Set();
    const twice = rows.find(([id]) => seen.size === seen.add(id).size);
    const odd = rows.find(([id]) => !/^[\w-]{22}$/.test(id));
    yield twice
      ? [false, 'Somebody is listed twice', `Place ${twice[1]}: ${twice[0]}.`]
      : odd
        ? [false, 'Something listed is no id', `Place ${odd[1]}.`]
        : [
            true,
            'Nobody is listed twice',
            `${number(rows.length)} ids, each with one place.`,
          ];

    const gap = rows.findIndex(([, place], at) => place !== at + 1);
    yield gap < 0
      ? [
          true,
          'No place is missing',
          `They are 1 to ${number(rows.length)}, each once.`,
        ]
      : [
          false,
          'A place is wrong',
          `Place ${rows[gap][1]} comes where ${gap + 1} should.`,
        ];

    const drawn = await computeLots(draw.secret, ids, tell);
    const right = ids
      .map((id, at) => [drawn[at], id])
      .sort((a, b) => a[0] - b[0] || (a[1] < b[1] ? -1 : 1));
    const moved = right.findIndex(([, id], at) => id !== ids[at]);
    yield moved < 0
      ? [
          true,
          'Every place is the one that was drawn',
          'All were drawn again with the secret: nobody was moved.',
        ]
      : [
          false,
          'A place is not the one that was drawn',
          `Place ${moved + 1} is listed as ${ids[moved]}’s; by the lots it is ${right[moved][1]}’s.`,
        ];

    const digest = await sha256(
      rows.map(([id, place]) => `${place} ${id}\n`).join(''),
    );
    yield draw.count === rows.length && draw.places_sha256 === digest
      ? [
          true,
          'It is the list of the opening',
          'Count and SHA-256 are those published then: nobody was added or taken out since.',
        ]
      : [
          false,
          'The list was changed',
          `It has ${number(rows.length)} places and the SHA-256 ${digest}; published were ${draw.count} and ${draw.places_sha256}.`,
        ];
    if (noted && noted.digest) {
      yield noted.digest === digest
        ? [
            true,
            'It is the list that this browser saw',
            'When it looked at this draw before.',
          ]
        : [
            false,
            'The list is another',
            `This browser saw one with the SHA-256 ${noted.digest}.`,
          ];
    }
  }

  // Earlier visits of this browser -----------------------------------------------------------------

  const name = draw => `wr-draw-${room}-${draw.event}-${draw.prequeue_from}`;

  function recall(draw) {
    try {
      return JSON.parse(localStorage[name(draw)] || 'null');
    } catch (e) {
      return null;
    }
  }

  function remember(draw, more) {
    const known = recall(draw) || {
      commitment: draw.commitment,
      at: draw.updated_at,
      before: !draw.secret,
    };
    try {
      localStorage[name(draw)] = JSON.stringify({ ...more, ...known });
    } catch (e) {
      /* storage is disabled */
    }
  }

  // The page ---------------------------------------------------------------------------------------

  function show(draw) {
    const opened = draw.secret !== null;
    put('heading', `The draw of ${draw.event}`);
    document.title = `The draw of ${draw.event} – ${$('site').textContent.trim()}`;
    put(
      'intro',
      opened
        ? 'The places of this event are drawn. Anybody can check that nobody was favoured.'
        : `Nothing is drawn yet. The secret and all places are published here after the opening, ${when(draw.opens_at)}.`,
    );
    put('commitment', draw.commitment);
    put('from', when(draw.prequeue_from));
    put('opens', when(draw.opens_at));
    put('count', draw.count === null ? '' : number(draw.count));
    put('secret', draw.secret || '');
    put('digest', draw.places_sha256 || '');
    for (const part of ['of-list', 'of-secret', 'of-digest'])
      $(part).hidden = !opened;
    $('facts').hidden = false;
    const noted = recall(draw);
    put(
      'noted',
      opened
        ? ''
        : noted && noted.commitment !== draw.commitment
          ? `On ${when(noted.at)} this browser saw another one: ${noted.commitment}. The draw was changed since.`
          : 'Write it down, or come back with this browser, which remembers it: after the opening the secret must fit it.',
    );
    $('noted').className =
      noted && noted.commitment !== draw.commitment ? 'box' : '';
    $('others').hidden = draw.events.length < 2;
    $('events').replaceChildren(
      ...draw.events
        .filter(other => other !== draw.event)
        .map(other => {
          const link = document.createElement('a');
          link.href = `draw?event=${encodeURIComponent(other)}${own ? `&id=${encodeURIComponent(own)}` : ''}`;
          link.textContent = other;
          const item = document.createElement('li');
          item.append(link);
          return item;
        }),
    );
  }

  function addResult([holds, what, says]) {
    const item = document.createElement('li');
    const title = document.createElement('b');
    title.textContent = what;
    item.className = holds ? '' : 'wrong';
    item.append(title, says);
    $('checks').append(item);
    return holds;
  }

  async function check(draw) {
    $('run').hidden = true;
    const places = [];
    let next = 0;
    $('progress').hidden = false;
    $('progress').max = 2 * Math.max(1, draw.count);
    while (next !== null) {
      const page = await ask(`${draw.places_url}&after=${next}&limit=${PAGE}`);
      places.push(...page.places);
      next = page.next;
      $('progress').value = places.length;
    }
    showOwn(places);
    $('checks').replaceChildren();
    let all = true;
    const noted = recall(draw);
    for await (const found of verify(draw, places, noted, done => {
      $('progress').value = places.length + done;
    }))
      all = addResult(found) && all;
    remember(draw, { digest: draw.places_sha256 });
    $('progress').hidden = true;
    put(
      'before-check',
      draw.store_emptied_at
        ? `The store was emptied on ${when(draw.store_emptied_at)}: the list is of those who came back since.`
        : '',
    );
    $('verdict').className = all ? 'box' : 'box wrong';
    put(
      'verdict',
      all
        ? `All ${number(places.length)} places are as they were drawn.`
        : 'Something is not as it was drawn: see above.',
    );
  }

  function showOwn(places) {
    if (!own) return;
    const mine = places.find(([id]) => id === own);
    $('own').hidden = false;
    $('mine').className = mine ? '' : 'text';
    put(
      'mine',
      mine
        ? `${number(mine[1])} of ${number(places.length)}`
        : 'This id is not in the list. It took no place before the opening; who comes later stands behind all who were drawn.',
    );
  }

  async function offerCheck(draw) {
    $('check').hidden = false;
    if (!crypto.subtle)
      return put(
        'trouble',
        'This browser computes nothing on a page without https. Open this page by https.',
      );
    if (draw.places_url === null)
      return put(
        'before-check',
        'The list of this draw is no longer kept: another pre-queue has begun. Who saved it can check it with waitroom verify-draw.',
      );
    if (draw.count <= PAGE) return check(draw);
    const megabytes = Math.ceil((draw.count * 34) / 1e6);
    put(
      'before-check',
      `Your browser can draw all ${number(draw.count)} places again. It reads about ${megabytes} MB for that.`,
    );
    put('run', 'Check all places');
    $('run').hidden = false;
    $('run').onclick = () => check(draw).catch(showError);
  }

  function showError(error) {
    $('progress').hidden = true;
    put('trouble', `The draw could not be read: ${error.message}`);
  }

  // Shows the room's own name, logo and links. Its colours are in style.css.
  async function loadBranding() {
    try {
      const {
        site_name: site,
        logo,
        footer = [],
      } = await ask(`/_waitroom/${room}/about`);
      if (site) put('site', site);
      if (logo) document.querySelector('header img').src = logo;
      $('footer').append(
        ...footer.map(({ text, address }) => {
          const link = document.createElement('a');
          link.textContent = text;
          link.href = address;
          return link;
        }),
      );
    } catch (error) {
      /* the page keeps its own */
    }
  }

  async function loadDraw() {
    let wait = 60;
    try {
      const draw = await ask(
        `/_waitroom/${room}/draw${event ? `?event=${encodeURIComponent(event)}` : ''}`,
      );
      put('trouble', '');
      if (!draw.secret) remember(draw);
      show(draw);
      if (draw.secret && (draw.count !== null || draw.places_url === null))
        return await offerCheck(draw);
      // Reload by the server's clock, spread so that not everybody does at once.
      const left =
        (Date.parse(draw.revealed_at) - Date.parse(draw.updated_at)) / 1000;
      wait = draw.secret
        ? 5
        : Math.min(60, Math.max(0, left) + 1 + Math.random() * 4);
    } catch (error) {
      showError(error);
      if (error.status === 404) {
        put('intro', '');
        return;
      }
      wait = 5 + Math.random() * 10;
    }
    setTimeout(loadDraw, wait * 1000);
  }
  loadBranding().then(loadDraw);
}
