'use strict';
{
  const root = document.documentElement;
  const {
    room,
    next,
    method,
    refresh,
    view: first,
    position: known,
  } = root.dataset;
  const api = `/_waitroom/${room}/`;
  const unsent = !/^(GET|HEAD)?$/.test(method || ''); // the data of a form did not arrive
  const plain = `${api}?${unsent ? 'unsent=1&' : ''}next=${next}`; // works without scripts
  // An element that an older or changed page lacks is not shown.
  const $ = id => document.getElementById(id) || document.createElement('i');
  const random = (low, high) => low + Math.random() * (high - low);
  const put = (id, text) => {
    if ($(id).textContent !== text) $(id).textContent = text;
  };

  // The language: that of the page, or else the first of the browser's that has a file.
  const langs = (root.dataset.languages || 'en zh-CN ja ko es fr de ar').split(
    ' ',
  );
  const base = tag => tag.toLowerCase().split('-')[0];
  const traditional = tag => /^zh\b.*-(hant|tw|hk|mo)\b/i.test(tag); // a script with its own file
  const served = (tag, from = langs) =>
    from.find(
      l => base(l) === base(tag) && traditional(l) === traditional(tag),
    ) || from.find(l => base(l) === base(tag));
  const lang =
    [root.lang, ...navigator.languages].map(tag => served(tag)).find(Boolean) ||
    'en';
  // The locale for numbers and times, by the visitor's region.
  let locale = lang + '-u-nu-latn';
  try {
    locale = String(
      new Intl.Locale(
        navigator.languages.find(tag => base(tag) === base(lang)) || lang,
        { numberingSystem: 'latn' },
      ),
    );
  } catch (e) {
    /* an unknown tag */
  }
  const number = n => (n == null ? '' : n.toLocaleString(locale));
  const parts = [
    ['day', 86400, 'd'],
    ['hour', 3600, 'h'],
    ['minute', 60, 'min'],
    ['second', 1, 's'],
  ];
  // Returns an amount with its unit, and the unit alone. Old browsers get the symbol of the unit.
  const formatUnit = (amount, [unit, , symbol], unitDisplay) => {
    try {
      const said = new Intl.NumberFormat(locale, {
        style: 'unit',
        unit,
        unitDisplay,
      }).formatToParts(amount);
      return [
        said.map(each => each.value).join(''),
        said.find(each => each.type === 'unit').value,
      ];
    } catch (e) {
      return [`${number(amount)} ${symbol}`, symbol];
    }
  };
  const length = seconds => {
    const part =
      parts.find(
        ([, one]) => seconds % one === 0 && (seconds > one || one < 3600),
      ) || parts[3];
    return formatUnit(seconds / part[1], part, 'long')[0];
  };
  let site = $('site').textContent.trim();
  let texts, about;

  if (/^\d+$/.test(known)) put('ahead', number(known - 1));
  else if (
    first === 'joining' ||
    (!refresh && /^(|waiting|not_queued)$/.test(root.dataset.state))
  )
    root.dataset.state = 'joining';
  delete root.dataset.view;
  // An older nginx serves the page in English, with the heading of a visitor who has a place.
  const older = !root.lang && !refresh;
  // Without cookies, the place of the heading may be lost already: the first response says.
  const blocked = !navigator.cookieEnabled;
  root.classList.toggle('load', older || blocked);
  root.lang = lang;

  async function loadTexts() {
    if (texts) return;
    try {
      // A text that the language's file lacks is shown in English.
      const files = [...new Set(['en', lang])].map(tag =>
        fetch(`/_waitroom/static/i18n/${tag}.json`).then(file => file.json()),
      );
      const all = Object.assign({}, ...(await Promise.all(files)));
      texts = new Proxy(all, {
        get: (_, key) => (typeof all[key] === 'string' ? all[key] : ''),
      });
      root.dir = texts.dir || 'ltr';
      document.querySelectorAll('[data-t]').forEach(e => {
        e.textContent = texts[e.dataset.t] || e.textContent;
      });
      if (unsent) put('unsent', texts.unsent);
      if (older && !data) {
        const full = root.dataset.state === 'full';
        put('heading', full ? texts.full : texts.joining);
        put('intro', texts.stay);
      }
      for (const [id, can] of [
        ['tools', true],
        ['stay', true],
        ['copy', navigator.clipboard],
        ['awake', navigator.wakeLock],
      ])
        $(id).hidden = !can;
      render();
    } catch (e) {
      /* the next poll loads the texts again */
    }
    root.classList.toggle('load', blocked && !data && !failures);
    loadAbout();
  }

  // Loads the facts about the room, which are the same for all visitors.
  async function loadAbout() {
    try {
      const answer = await fetch(api + 'about');
      if (!answer.ok) return;
      about = await answer.json();
      const {
        session_seconds: session,
        session_max_seconds: most,
        is_renewed: renewed,
        place_seconds: place,
        site_name: name,
        logo,
        footer,
      } = about;
      if (logo) document.querySelector('header img').src = logo;
      if (footer && footer.length)
        $('footer').replaceChildren(
          ...footer.map(({ text, address }) => {
            const link = document.createElement('a');
            link.textContent = text;
            link.href = address;
            if (/^[/h]/.test(address))
              Object.assign(link, { target: '_blank', rel: 'noopener' }); // a page that is left stops polling
            return link;
          }),
        );
      if (name) put('site', (site = name));
      render();
      $('know').replaceChildren(
        ...[
          place && ['know_away', place],
          session && [renewed ? 'know_visit_renewed' : 'know_visit', session],
          renewed && most && ['know_visit_max', most],
          ['know_reload', 0],
        ]
          .filter(Boolean)
          .map(([key, seconds]) => {
            const item = document.createElement('li');
            item.textContent = texts[key].replace('{t}', length(seconds));
            return item;
          }),
      );
      $('how').hidden = false;
      $('how').open = matchMedia('(min-width: 48rem)').matches;
    } catch (e) {
      /* the page works without these facts */
    }
  }

  // Returns the wait to show, by the same rules as the server: its lowest and highest number of
  // minutes, and the step that they are rounded to. A range of 3:1 or more becomes one figure.
  const pickStep = (minutes, ...mosts) =>
    [1, 5, 10, 30, 60][
      mosts.concat(240, Infinity).findIndex(m => minutes <= m)
    ];
  function roundWait(low, mid, high) {
    let step = pickStep(high, 20, 60, 80);
    const from = Math.floor(low / step) * step,
      to = Math.ceil(high / step) * step;
    if (to < 3 * from) return [from, to, step];
    step = pickStep(mid, 10, 30, 75);
    const figure = Math.floor(mid / step + 0.5) * step;
    return figure > 1 ? [figure, figure] : [0, Math.ceil(high)];
  }

  // Returns the estimated wait in words, and the expected times of the call by the visitor's clock
  // if the wait is shown as a range.
  function formatWait({
    measuring,
    updated_at: at,
    wait_seconds: mid,
    wait_seconds_low: low,
    wait_seconds_high: high,
  }) {
    if (mid == null)
      return [measuring ? texts.wait_measuring : texts.wait_unknown, ''];
    if (low == null) low = mid;
    if (high == null) high = mid;
    if (high <= 60) return [texts.wait_less, ''];
    const [from, to, step] = roundWait(low / 60, mid / 60, high / 60);
    const isRange = from && from < to;
    const unit = to < 90 ? 1 : 60;
    const text =
      unit > 1 ? texts.wait_hours : from ? texts.wait_about : texts.wait_under;
    const end = number(to / unit);
    return [
      text.replace('{n}', isRange ? `${number(from / unit)}–${end}` : end),
      isRange ? formatTimes(Date.parse(at), low, high, step) : '',
    ];
  }

  function formatTimes(at, low, high, minutes) {
    const step = Math.min(minutes, 15) * 6e4;
    const range = [
      Math.floor((at + low * 1000) / step) * step,
      Math.ceil((at + high * 1000) / step) * step,
    ];
    const time = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
    return time.formatRange
      ? time.formatRange(...range)
      : range.map(each => time.format(each)).join(' – ');
  }

  // Returns how many places per minute the visitor moves up, if it is one at least.
  function formatPace({ ahead, wait_seconds: wait }) {
    const exact = ((ahead + 1) / wait) * 60,
      n = exact < 3 ? Math.round(exact * 10) / 10 : Math.round(exact);
    return !wait || ahead == null || n < 1
      ? ''
      : texts.pace.replace('{n}', number(n));
  }

  // Returns the visitor number: the first 40 bits of the id, without letters that look like digits.
  function visitorNumber(id) {
    const bits = [...atob(id.slice(0, 8).replace(/-/g, '+').replace(/_/g, '/'))]
      .slice(0, 5)
      .reduce((sum, c) => sum * 256 + c.charCodeAt(), 0);
    const text = [...bits.toString(32).padStart(8, 0)]
      .map(c => '0123456789ABCDEFGHJKMNPQRSTVWXYZ'[parseInt(c, 32)])
      .join('');
    return text.slice(0, 4) + '-' + text.slice(4);
  }

  // Values that this tab remembers. If storage is disabled, they last as long as the page.
  let store = {},
    lasting = false;
  try {
    sessionStorage.wr = '';
    store = sessionStorage;
    lasting = true;
  } catch (e) {
    /* storage is disabled */
  }
  const recall = key => JSON.parse(store[`wr-${room}-${key}`] || '{}');
  const keep = (key, value) => {
    try {
      store[`wr-${room}-${key}`] = JSON.stringify(value);
    } catch (e) {
      /* storage is full */
    }
  };

  const views = {
    waiting: ['heading', 'intro'],
    admitted: ['turn', 'turn_intro'],
    full: ['full', 'stay'],
    closed: ['closed', 'closed_intro'],
    left: ['left', 'left_intro'],
    not_queued: ['lost', 'lost_intro'],
    opens: ['opens_on', 'opens_intro'],
    prequeue: ['prequeue', 'equal'],
  };
  let data,
    left = false,
    moved = false,
    ticker;

  function chooseView({ state, phase, opens_at: opens }) {
    if (left) return 'left';
    if (state === 'closed' && phase === 'closed' && opens) return 'opens';
    return state === 'waiting' && phase === 'prequeue'
      ? 'prequeue'
      : views[state]
        ? state
        : 'waiting';
  }

  // The server's time. A response may be late, because nginx caches some, but never early.
  let clock = -Infinity;
  const now = () => clock + performance.now();

  // Shows the days, hours, minutes and seconds until the opening.
  for (const each of parts) {
    const part = $('left').appendChild(document.createElement('span'));
    part.append(document.createElement('b'), formatUnit(11, each, 'short')[1]);
  }
  function tick() {
    clearTimeout(ticker);
    const rest = Date.parse(data.opens_at) - now();
    let seconds = Math.max(0, Math.ceil(rest / 1000));
    parts.forEach(([, length], i) => {
      const part = $('left').children[i],
        count = Math.floor(seconds / length);
      part.firstChild.textContent = String(count).padStart(2, 0);
      if (!i) part.hidden = !count;
      seconds %= length;
    });
    if (rest > 0 && !$('clock').hidden)
      ticker = setTimeout(tick, (rest % 1000) + 10);
  }

  // Shows the opening in the visitor's time zone. Returns it for the heading and for the text.
  function showOpening(view) {
    const opens = new Date(data.opens_at),
      begins = new Date(data.prequeue_from);
    const time = { timeStyle: 'short' },
      long = { dateStyle: 'long', ...time };
    const say = (when, how) => when.toLocaleString(locale, how);
    const same = (one, other) =>
      one.toDateString() === new Date(other).toDateString();
    const day = { weekday: 'long', day: 'numeric', month: 'long' },
      clock = { hour: 'numeric', minute: '2-digit' };
    const lines = [
      say(opens, { ...day, year: 'numeric', ...clock, timeZoneName: 'short' }),
    ];
    // The event's own time zone, if its clocks show another time.
    const there = data.timezone && { timeZone: data.timezone };
    if (there && say(opens, there) !== say(opens)) {
      const date = { dateStyle: 'short' },
        sameDay = say(opens, { ...date, ...there }) === say(opens, date);
      lines.push(
        say(opens, {
          ...(sameDay ? {} : day),
          ...clock,
          timeZoneName: 'long',
          ...there,
        }),
      );
    }
    if (view === 'opens' && data.prequeue_from)
      lines.push(
        texts.pre_from.replace(
          '{t}',
          say(begins, same(begins, opens) ? time : long),
        ),
      );
    put('when', lines.join('\n'));
    if (same(opens, now())) return ['opens_at', say(opens, time)];
    return [
      'opens_on',
      say(opens, view === 'opens' ? { day: 'numeric', month: 'long' } : long),
    ];
  }

  // Returns the operator's message, in the visitor's language if there is one in it.
  function message() {
    const all = data.messages || {};
    // A preview has its own language. A page in English may only have fallen back to it.
    const own = lang === 'en' ? [] : [lang];
    const tag = [...navigator.languages, ...own]
      .map(each => served(each, Object.keys(all)))
      .find(Boolean);
    return (tag ? all[tag] : data.message) || '';
  }

  function render(restored) {
    if (!data) return;
    const { state, position, ahead, position_above: above } = data;
    const place = above ? number(above) + '+' : number(ahead);
    const view = chooseView(data);
    const bar = document.querySelector('progress'),
      focused = document.activeElement;
    root.dataset.state = state;
    root.dataset.phase = data.phase;
    root.dataset.view = view;
    put('ahead', place);
    put('position', above ? place : number(position)); // for a page of an older version
    put('number', data.visitor ? visitorNumber(data.visitor) : '');
    put('waiting', number(data.waiting));
    put('message', message());
    put(
      'updated',
      new Date(Date.parse(data.updated_at) || Date.now()).toLocaleTimeString(
        locale,
      ),
    );
    $('paused').hidden = !data.paused;
    $('time').hidden = data.paused;
    if (position) {
      // The progress bar never moves backwards, even if an operator moves somebody ahead.
      const { first = position, best = position } = recall(data.joined_at);
      const passed = { first, best: Math.min(best, position) };
      keep(data.joined_at, passed);
      bar.max = first + 1;
      bar.value = bar.max - passed.best;
    }
    if (state === 'admitted') bar.value = bar.max;
    $('lane').hidden = !position && state !== 'admitted';
    $('clock').hidden = view !== 'opens' && view !== 'prequeue';
    tick();
    if (!texts) return;
    const [named, opens] = $('clock').hidden ? [] : showOpening(view);
    const next = position === 1 && view === 'waiting' && !data.paused;
    const [heading, intro = ''] = (next ? ['next', 'intro'] : views[view]).map(
      key => texts[key === 'opens_on' ? named : key].replace('{t}', opens),
    );
    put('heading', heading);
    put(
      'intro',
      moved && view === 'waiting'
        ? texts.moved
        : view === 'opens' && data.prequeue_from
          ? texts.opens_draw
          : intro,
    );
    put('notify', texts[$('clock').hidden ? 'notify' : 'notify_opens']);
    put('paused', data.paused ? texts.paused : '');
    const labels = about && about.lines && about.lines[data.line];
    const label =
      labels && (labels[lang] || labels.en || Object.values(labels)[0]);
    put('line', label ? texts.line.replace('{n}', label) : '');
    const [wait, times] = formatWait(data);
    const whole = times.replace('–', '\u2060–\u2060'); // in one line
    put('wait', wait);
    put('between', times && texts.between.replace('{t}', whole));
    put('pace', data.paused ? '' : formatPace(data));
    $('speed').hidden = !$('pace').textContent;
    document.title = `${state === 'waiting' && (above || ahead) ? `(${place}) ` : ''}${heading} – ${site}`;
    // If the focused element is hidden now, focus the heading rather than the page's top.
    if (focused !== document.body && !focused.getClientRects().length)
      $('heading').focus();
    announce(view, heading, restored);
  }

  // Announces changes to screen readers, and a new position at most every 30 s.
  const said = { view: 'waiting', at: 0 };
  function announce(view, heading, restored) {
    const { position_above: above, paused } = data;
    const p = above ? above + 1 : data.position; // 1 is next
    const updates = restored ? [texts.online] : [],
      news = message();
    if (view !== said.view) updates.push(heading);
    if (news && news !== said.news) updates.push(news);
    if (paused && !said.paused) updates.push(texts.paused);
    if (
      p &&
      p !== said.p &&
      (Date.now() - said.at >= 3e4 || p === 1 || (p <= 10 && said.p > 10))
    ) {
      if (p > 1)
        updates.push(
          `${texts.ahead}: ${above ? texts.above.replace('{n}', number(above)) : number(data.ahead)}`,
        );
      else if (view === said.view) updates.push(heading);
      said.p = p;
      said.at = Date.now();
    }
    Object.assign(said, { view, news, paused });
    if (updates.length) put('live', updates.join('\n'));
  }

  // The grant of a class, in the page's own address or in `next`.
  const [granted] = /[?&]waitroom_grant=[\w.-]+/.exec(
    location.search + '&' + next,
  ) || [''];
  let joinUrl; // set while the shield is up
  const joining = () =>
    joinUrl
      ? joinUrl + granted.replace('?', '&')
      : api + 'join' + granted.replace('&', '?');

  let timer,
    due = Infinity,
    action,
    current,
    failures = 0,
    tried = blocked,
    heard = 0;

  function plan(seconds, what) {
    const ms = Math.min(seconds, 86400) * 1000;
    clearTimeout(timer);
    timer = setTimeout(call, ms, what);
    due = Date.now() + ms;
    action = what;
  }

  async function call(what) {
    clearTimeout(timer);
    due = Infinity;
    if (current) current.abort();
    const mine = (current = new AbortController());
    const limit = setTimeout(() => mine.abort(), 20000);
    let after = 0,
      answer;
    loadTexts();
    try {
      const response = await fetch(what === 'join' ? joining() : api + what, {
        method: what === 'status' ? 'GET' : 'POST',
        headers: { Accept: 'application/json' },
        cache: 'no-store',
        signal: mine.signal,
      });
      after = Number(response.headers.get('Retry-After')) || 0;
      answer = response.ok && (await response.json());
      if (current !== mine) return;
      if (answer) receive(answer, what);
      else if (response.status === 429) {
        plan((after || 10) * random(1, 1.05), what);
        if (what === 'status' && !data) {
          // a visitor who polls too often keeps the place
          root.dataset.state = 'waiting';
          if (texts) put('heading', texts.heading);
        }
      } else throw response;
    } catch (e) {
      if (current !== mine) return;
      if (answer) return setTimeout(() => location.replace(plain), 5000); // the browser lacks a feature
      // Keep the numbers and retry with growing pauses, at a random time.
      const kept = /^(waiting|admitted)$/.test(root.dataset.state);
      if (texts) put('offline', texts[kept ? 'offline' : 'offline_new']);
      $('offline').hidden = false;
      root.classList.remove('load');
      if (!failures++) put('live', $('offline').textContent);
      plan(Math.max(after, random(2, Math.min(60, 2 ** (failures + 1)))), what);
    } finally {
      clearTimeout(limit);
    }
  }

  function receive(answer, what) {
    const { state, refresh_after_seconds: seconds } = answer;
    const restored = failures > 0;
    const begins = Date.parse(answer.prequeue_from || answer.opens_at);
    clock = Math.max(clock, Date.parse(answer.updated_at) - performance.now());
    failures = 0;
    $('offline').hidden = true;
    if (what === 'leave') {
      left = true;
    } else if (state === 'admitted') {
      if (data && data.state !== state) ring('turn');
      enter();
    } else if (state === 'not_queued') {
      if (data && data.state === 'waiting' && Date.now() - heard > 3e5) {
        // the visitor did not poll for too long
        moved = true;
        tried = false;
      }
      joinUrl = answer.join_url; // only while the shield is up, and valid after 2 s
      if (!tried || joinUrl) {
        // join, because the visitor has no place yet
        tried = true;
        return plan(random(joinUrl ? 2 : 0, seconds || 1), 'join');
      }
    } else {
      tried = state === 'waiting';
      const opens = chooseView(answer) === 'opens'; // the server has already spread these polls
      const joins =
        state === 'full' || (opens && begins - now() <= seconds * 1000);
      plan(
        (seconds || 5) * (opens ? 1 : random(1, 1.05)),
        joins ? 'join' : 'status',
      );
    }
    if (
      /waiting|full/.test(state) &&
      !$('clock').hidden &&
      answer.phase === 'open'
    )
      ring('opened');
    data = answer;
    heard = Date.now();
    render(restored);
    if (texts) root.classList.remove('load');
  }

  // Announces the call, also to a visitor in another tab, and with a sound if it is turned on.
  let sound;
  function tone() {
    [0, 0.2].forEach((at, i) => {
      const wave = sound.createOscillator(),
        gain = sound.createGain(),
        start = sound.currentTime + at;
      wave.frequency.value = [660, 880][i];
      gain.gain.setValueAtTime(0.2, start);
      gain.gain.exponentialRampToValueAtTime(0.001, start + 0.6);
      wave.connect(gain).connect(sound.destination);
      wave.start(start);
      wave.stop(start + 0.6);
    });
  }
  function ring(key) {
    if (key === 'turn')
      document.querySelector('[rel=icon]').href = '/_waitroom/static/turn.svg';
    if (!sound) return;
    tone();
    try {
      new Notification(texts[key], {
        body: site,
        icon: '/_waitroom/static/turn.svg',
      });
    } catch (e) {
      /* not supported */
    }
  }
  const showBlocked = () => {
    $('blocked').hidden =
      !sound || !self.Notification || Notification.permission !== 'denied';
    if (!$('blocked').hidden) put('live', texts.blocked);
  };
  $('notify').addEventListener('click', () => {
    const on = !sound;
    if (on) {
      sound = new AudioContext();
      tone(); // plays a sample
    } else {
      sound.close();
      sound = undefined;
    }
    $('notify').setAttribute('aria-pressed', on);
    showBlocked();
    if (on && self.Notification && Notification.permission === 'default')
      Notification.requestPermission().then(showBlocked);
  });

  // Keeps the screen on if the visitor wants that. A hidden page loses the wake lock.
  let lit;
  async function setWakeLock(on) {
    try {
      if (lit) await lit.release();
      lit = on ? await navigator.wakeLock.request('screen') : undefined;
    } catch (e) {
      on = false; // the battery is low
    }
    $('awake').setAttribute('aria-pressed', on);
  }
  $('awake').addEventListener('click', () => setWakeLock(!lit));

  $('copy').addEventListener('click', async () => {
    await navigator.clipboard.writeText($('number').textContent);
    put('copy', texts.copied);
    put('live', texts.copied);
    setTimeout(put, 3000, 'copy', texts.copy);
  });

  // Waits longer each time if the site keeps sending its visitor back.
  function enter() {
    let { count = 0, at = 0 } = recall('enter');
    count = Date.now() - at < 15000 ? count + 1 : 1;
    let delay =
      count > 3 ? random(0.5, 1) * Math.min(60, 2 ** (count - 1)) : 0.5;
    const [{ type } = {}] = performance.getEntriesByType('navigation');
    if (!lasting && type === 'reload') delay = random(4, 8);
    if (sound) delay = Math.max(delay, 1); // until the sound ends
    setTimeout(() => {
      keep('enter', { count, at: Date.now() });
      const safe = /^\/(?!\/)[^?\\\0- \x7f]*(\?[^\0- \x7f]*)?$/.test(next)
        ? next
        : '/';
      const own = location.pathname.startsWith('/_waitroom/');
      const go = () => location.replace(safe + (own ? location.hash : ''));
      // If the site takes long or its response is stuck, the visitor may load it again.
      setTimeout(() => {
        $('go').hidden = false;
        put('live', texts.claim_go);
      }, 5000);
      $('go').onclick = () => (own || unsent ? go() : location.reload());
      if (!own && !unsent) return location.reload();
      if (
        own ||
        history.length < 2 ||
        !document.referrer.startsWith(location.origin + '/')
      )
        return go();
      history.back(); // to the form with its contents
      setTimeout(go, 3000);
    }, delay * 1000);
  }

  // Gives up the place when the time for "undo" is over or the page is closed.
  const UNDO_MS = 8000;
  let going;
  function finishLeaving(done) {
    clearTimeout(going);
    going = undefined;
    if (document.activeElement === $('undo')) $('heading').focus();
    $('undo').hidden = true;
    $('join').hidden = false;
    document.querySelectorAll('form details').forEach(each => {
      each.open = false;
    });
    if (done) call('leave');
  }
  $('leave').addEventListener('click', event => {
    event.preventDefault();
    clearTimeout(timer);
    if (current) current.abort();
    current = undefined;
    due = Infinity;
    left = true;
    failures = 0;
    $('offline').hidden = true;
    going = setTimeout(finishLeaving, UNDO_MS, true);
    $('undo').hidden = false;
    $('undo').style.setProperty('--wr-time', `${UNDO_MS}ms`);
    $('join').hidden = true;
    data = {
      ...data,
      state: 'not_queued',
      position: null,
      ahead: null,
      position_above: null,
      message: null,
      messages: null,
      paused: false,
    };
    render();
    $('heading').focus();
  });
  $('undo').addEventListener('click', () => {
    left = false;
    finishLeaving(false);
    call('status');
  });
  $('stay').addEventListener('click', () => {
    finishLeaving(false);
    document.querySelector('form summary').focus();
  });
  addEventListener('pagehide', () => {
    if (going) navigator.sendBeacon(api + 'leave');
    finishLeaving(false);
  });
  $('join').addEventListener('click', event => {
    event.preventDefault();
    const known = going;
    finishLeaving(false);
    left = moved = false;
    tried = true;
    $('heading').focus();
    call(known ? 'status' : 'join');
  });
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return;
    if (lit) setWakeLock(true);
    if (Date.now() >= due) call(action);
  });
  addEventListener('online', () => {
    if (failures && !going) plan(random(0, 2), action);
  });
  addEventListener('pageshow', event => {
    if (event.persisted && !left) call('status');
  });
  // The page reloads itself until this script runs. window.stop() ends all loading, so wait for the
  // last image first, for three seconds at most.
  function begin() {
    if (begun) return;
    begun = true;
    stop();
    document.querySelectorAll('meta[http-equiv=refresh]').forEach(each => {
      each.remove();
    });
    // A prerendered page takes no place before the visitor opens it.
    if (document.prerendering)
      document.addEventListener('prerenderingchange', () => call('status'), {
        once: true,
      });
    else call('status');
  }
  let begun = false;
  if (!room)
    location.reload(); // a script of the site inserted this page into its own
  else if (document.readyState === 'complete') begin();
  else {
    addEventListener('load', begin);
    setTimeout(begin, 3000);
  }
}
