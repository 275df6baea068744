// A site's sessions, and the devices that may run its jobs.
import * as clock from './clock.js';
import { arrange, el, foreign, say } from './dom.js';
import { counted, span } from './format.js';

// panelsView draws into the two tables of root.
export function panelsView(root) {
  const sessions = root.querySelector('.sessions'), devices = root.querySelector('.devices');
  let site = null;

  // keeper makes lines, and keeps those of which nothing changed.
  function keeper(key, make) {
    let known = new Map();
    return (list) => {
      const next = new Map(list.map((x) => {
        const text = JSON.stringify(x), old = known.get(x[key]);
        return [x[key], old?.text === text ? old : { text, node: make(x) }];
      }));
      known = next;
      return [...next.values()].map((k) => k.node);
    };
  }
  const lines = { sessions: keeper('id', session), devices: keeper('runner', device) };

  // cell is named by its column, for screens that are too narrow for one.
  const cell = (column, ...children) => el('td', { role: 'cell', 'data-name': column }, ...children);
  const head = (...children) => el('th', { role: 'rowheader', scope: 'row' }, ...children);
  const age = (ms) => el('span', { 'data-since': ms });

  function session(s) {
    const offers = [[s.seals, 'seal request'], [s.results, 'result'], [s.notices, 'notice']].filter(([n]) => n).map(([n, what]) => counted(n, what));
    return el('tr', { role: 'row' },
      head(foreign(s.client || 'unnamed'), s.silent ? el('span', { class: 'flag' }, 'silent') : null),
      cell('from', foreign(s.remote)), cell('open for', age(s.opened)), cell('on offer', offers.join(', ') || '–'), cell('session', el('span', { class: 'key' }, foreign(s.id))));
  }

  function device(d) {
    const where = { here: 'connected', polls: 'polls', elsewhere: 'elsewhere' }[d.where] ?? 'away';
    const flags = [d.paused && d.where && 'paused', d.deaf && 'unanswered'].filter(Boolean).map((f) => el('span', { class: 'flag' }, f));
    return el('tr', { role: 'row', 'data-where': d.where ?? 'away' },
      head(foreign(d.runner)), cell('owner', foreign(d.owner)),
      cell('is', el('span', { class: 'where' }, where), flags),
      cell('slots', d.where === 'here' ? slots(d) : d.slots ? `${d.slots} slots` : '–'),
      cell(d.where === 'here' ? 'open for' : 'last seen', d.where === 'here' ? age(d.opened) : d.seen ? [age(d.seen), ' ago'] : 'never'),
      cell('kinds', d.kinds?.length ? d.kinds.flatMap((k, i) => [i ? ', ' : null, foreign(k)]) : '–'),
      cell('client', d.client ? foreign(d.client) : '–'), cell('key', el('span', { class: 'key' }, foreign(d.key))));
  }

  function slots(d) {
    const meter = el('span', { class: 'meter', 'aria-hidden': 'true' }, el('i'));
    meter.firstChild.style.width = `${Math.min(100, (100 * (d.leases ?? 0)) / Math.max(1, d.slots))}%`;
    return [meter, `${d.leases ?? 0} of ${d.slots}`];
  }

  function tick() {
    for (const node of root.querySelectorAll('[data-since]')) say(node, span(Math.max(0, clock.now() - Number(node.dataset.since))));
  }

  return {
    tick,
    draw(next) {
      if (!next || next === site) return;
      site = next;
      const polls = site.polls ? `, and ${counted(site.polls, 'request')} that polls` : '';
      say(sessions.querySelector('h3'), `Sessions of the site here: ${site.sessions.length}${polls}`);
      arrange(sessions.querySelector('tbody'), lines.sessions(site.sessions));
      sessions.classList.toggle('empty', !site.sessions.length);
      const all = site.devices.length + (site.more ?? 0);
      say(devices.querySelector('h3'), `Devices that may run its jobs: ${site.connected} of ${all} connected`);
      arrange(devices.querySelector('tbody'), lines.devices(site.devices));
      devices.classList.toggle('empty', !all);
      say(devices.querySelector('.note'), site.more ? `${counted(site.more, 'more device', 'more devices')}, not shown.` : '');
      tick();
    },
  };
}
