// One site: its numbers, charts, jobs, sessions and devices.
import { to } from './address.js';
import * as clock from './clock.js';
import { chartsView } from './charts.js';
import { say } from './dom.js';
import { drawer } from './drawer.js';
import { count, counted } from './format.js';
import { panelsView } from './panels.js';
import { jobTable } from './table.js';

// Chips filter by states; what is collected is on its way out.
const chips = {
  all: [], queued: ['queued'], awaiting: ['offered', 'awaiting'], ready: ['ready'], running: ['running'], done: ['done'],
  ended: ['collected', 'dropped'],
};

// siteView draws a site into root; look is called when what is looked at changed.
export function siteView(root, site, look) {
  const field = root.querySelector('#filter'), newest = root.querySelector('#newest'), warning = root.querySelector('.warning');
  const note = root.querySelector('.jobs .note'), heard = root.querySelector('#heard'), empty = root.querySelector('.jobs .empty');
  const buttons = [...root.querySelectorAll('[data-chip]')];
  const charts = chartsView(root.querySelector('.charts')), panels = panelsView(root);
  const go = (job) => { location.hash = to(site, job); };
  const quit = new AbortController();
  const history = drawer(root.querySelector('#history'), () => go(null), quit.signal);
  const table = jobTable(root.querySelector('.rows'), { look, open: go });
  let chip = 'all', job = null, wait = 0, told = '';

  field.value = '';
  newest.checked = false;
  choose('all');

  function choose(name) {
    chip = name;
    for (const b of buttons) b.setAttribute('aria-pressed', String(b.dataset.chip === name));
  }

  function filtered() {
    told = '';
    table.top();
    look();
  }

  field.addEventListener('input', () => {
    clearTimeout(wait);
    wait = setTimeout(filtered, 150);
  }, { signal: quit.signal });
  newest.addEventListener('change', filtered, { signal: quit.signal });
  for (const b of buttons) {
    b.addEventListener('click', () => {
      choose(b.dataset.chip);
      filtered();
    }, { signal: quit.signal });
  }

  // warn says what keeps all of the site's jobs from moving.
  function warn(s) {
    const waiting = s.counts.queued ?? 0;
    let text = '';
    if (s.draining) text = 'This relay is going away: nothing new is handed out.';
    else if (!s.known) text = 'The projection doesn’t know this site: none of its jobs can be handed out.';
    else if (s.silent) text = 'No session of the site answers seal requests: it counts as absent.';
    else if (!s.present && waiting) text = 'No session of the site is open: nothing of it is handed out.';
    else if (!s.connected && waiting) text = 'No device that may run this site’s jobs is connected.';
    say(warning, text);
    warning.hidden = !text;
  }

  function numbers(s) {
    let all = 0;
    for (const b of buttons) {
      if (b.dataset.chip === 'all' || b.dataset.chip === 'ended') continue;
      const n = chips[b.dataset.chip].reduce((sum, state) => sum + (s.counts[state] ?? 0), 0);
      all += n;
      say(b.querySelector('b'), count(n));
    }
    say(buttons.find((b) => b.dataset.chip === 'all').querySelector('b'), count(all));
  }

  function list(rows, site) {
    table.draw(rows);
    const all = Object.values(site?.counts ?? {}).reduce((a, b) => a + b, 0);
    empty.hidden = rows.total > 0;
    say(empty, rows.loading ? 'Reading…' : field.value || chip !== 'all' ? 'No job passes the filter.' : 'No jobs here now. Those that the site enqueues appear at once; those that ended are gone.');
    say(note, rows.loading ? `Reading: ${count(rows.loaded)} of ${count(Math.max(all, rows.loaded))} so far.`
      : rows.full ? `More jobs than this page can hold; the first ${count(rows.loaded)} are shown.` : counted(rows.total, 'job'));
    // Said once after each change of the filter, not with each job that comes and goes.
    if (!rows.loading && told !== field.value + chip) {
      told = field.value + chip;
      say(heard, `${counted(rows.total, 'job')} shown`);
    }
  }

  return {
    look: () => ({ ...table.look(), states: chips[chip], text: field.value.trim(), newest: newest.checked, job: job ?? '' }),
    open(id) {
      if (id === job) return;
      job = id;
      history.open(id);
      table.choose(id);
      look();
    },
    draw(state, message) {
      if (message.site) {
        warn(state.site);
        numbers(state.site);
        panels.draw(state.site);
      }
      if (message.rows) list(state.rows, state.site);
      if (message.chart) charts.draw(state.chart, clock.now());
      if (message.job) history.draw(state.job);
    },
    tick() {
      table.tick();
      panels.tick();
      history.tick();
    },
    close() {
      history.open(null);
      quit.abort();
      clearTimeout(wait);
      table.close();
    },
  };
}
