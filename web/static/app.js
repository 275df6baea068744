// The page: which of its views is shown, the connection's state, and the address of what is looked at.
import * as login from './login.js';
import * as stream from './stream.js';
import { clock } from './format.js';
import { foreign, say } from './dom.js';
import { inert } from './inert.js';
import { siteView } from './site.js';
import { sitesView } from './sites.js';
import * as merge from './merge.js';
import { parse } from './address.js';

const by = (id) => document.getElementById(id);
const parts = { login: by('login'), main: by('main'), status: by('status'), crumb: by('crumb'), freeze: by('freeze'), out: by('logout') };

let view = null, feed = null, state = {}, frozen = false, inside = false, shown = undefined;

function show(which) {
  document.body.dataset.view = which;
  for (const id of ['login', 'sites', 'site']) by(id).hidden = id !== which;
  parts.freeze.hidden = parts.out.hidden = parts.status.hidden = which === 'login';
}

function status(kind, text) {
  parts.status.dataset.kind = kind;
  say(parts.status.querySelector('.text'), text);
  document.body.classList.toggle('stale', kind === 'stale');
}

// look tells the relay what this page looks at: nothing while nobody sees it or it is frozen.
function look() {
  if (!view || !feed) return;
  const hidden = document.visibilityState === 'hidden' || frozen;
  feed.look({ ...view.look(), hidden });
}

function leave() {
  feed?.close();
  view?.close();
  feed = view = null;
}

// askToken shows the form; nothing else is asked of the relay until it is sent.
function askToken() {
  leave();
  inside = false;
  parts.crumb.replaceChildren();
  show('login');
  by('token').focus();
}

function enter() {
  if (!inside) return;
  const { site, job } = parse(location.hash);
  if (view && shown === site) {
    view.open(job);
    return;
  }
  leave();
  shown = site;
  freeze(false);
  state = {};
  parts.crumb.replaceChildren();
  if (site === null) {
    show('sites');
    document.title = 'Sites – pushrelay';
    view = sitesView(by('sites'), look);
  } else {
    show('site');
    document.title = `${inert(site)} – pushrelay`;
    parts.crumb.append(foreign(site));
    view = siteView(by('site'), site, look);
    view.open(job);
  }
  status('wait', 'connecting');
  feed = stream.open(site, {
    update(message) {
      if (frozen) return;
      state = merge.update(state, message);
      view.draw(state, message);
      if (parts.status.dataset.kind !== 'live') status('live', 'live');
    },
    live: () => status(frozen ? 'frozen' : 'live', frozen ? parts.status.textContent : 'live'),
    stale: (since) => status('stale', since ? `stale since ${clock(since)}` : 'the relay can’t be reached'),
    login: askToken,
  });
  look();
}

function freeze(on) {
  frozen = on;
  parts.freeze.setAttribute('aria-pressed', String(on));
  document.body.classList.toggle('frozen', on);
  if (on) status('frozen', `frozen at ${clock(state.now ?? Date.now())}`);
  else if (view) status('wait', 'catching up');
  look();
}

parts.freeze.addEventListener('click', () => freeze(!frozen));
parts.out.addEventListener('click', async () => {
  await fetch('logout', { method: 'POST' }).catch(() => {});
  askToken();
});
document.addEventListener('visibilitychange', () => {
  look();
  feed?.wake();
});
window.addEventListener('hashchange', enter);
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // its address would be taken for one of a site
  by('main').focus();
});

login.watch(by('login').querySelector('form'), () => {
  shown = undefined;
  inside = true;
  enter();
});

// Ages and count-downs move each second, unless what is shown is old.
setInterval(() => {
  if (parts.status.dataset.kind === 'live' && document.visibilityState === 'visible') view?.tick();
}, 1000);

async function begin() {
  try {
    const answer = await fetch('session', { cache: 'no-store' });
    if (answer.status === 401) return askToken();
  } catch {
    // the relay can't be reached: the stream says so, and dials again
  }
  inside = true;
  enter();
}
begin();
