// One row of the table of jobs.
import { to } from './address.js';
import * as clock from './clock.js';
import { el, mark, put, say } from './dom.js';
import { brief, bytes } from './format.js';
import { held, word } from './reasons.js';

const current = () => new URLSearchParams(location.hash.slice(1)).get('site') ?? '';

// Columns: state, job, kind, owner, holder or why, in state, window, lease, deadline, payload, result.
export function makeRow() {
  const cell = (name, ...children) => el('td', { role: 'cell', class: name }, ...children);
  const link = el('a', { tabindex: -1 });
  const id = el('bdi', { class: 'foreign' }), kind = el('bdi', { class: 'foreign' }), owner = el('bdi', { class: 'foreign' });
  const state = el('span', { class: 'state' }), flag = el('span', { class: 'flag', hidden: true }, 'cancel');
  const holder = el('bdi', { class: 'foreign key' }), why = el('span', { class: 'why' });
  const since = cell('since'), window = cell('window'), lease = cell('lease'), deadline = cell('deadline');
  const payload = cell('payload'), result = cell('result');
  link.append(id);
  const node = el('tr', { role: 'row' },
    cell('status', state, flag), el('th', { role: 'rowheader', scope: 'row', class: 'job' }, link), cell('kind', kind), cell('owner', owner),
    cell('holder', holder, why), since, window, lease, deadline, payload, result);
  let job = null;

  // tick moves what depends on the time.
  function tick() {
    if (!job) return;
    const now = clock.now();
    say(since, job.since ? brief(Math.max(0, now - job.since)) : '–');
    down(window, job.state === 'offered' ? job.offer : job.state === 'awaiting' ? job.window : 0, now);
    down(lease, ['offered', 'awaiting', 'ready', 'running'].includes(job.state) ? job.lease : 0, now);
    down(deadline, ['done', 'collected', 'dropped'].includes(job.state) ? 0 : job.deadline, now);
  }

  return {
    node, link, tick,
    get id() { return job?.id; },
    fill(j) {
      if (j === job) return;
      job = j;
      mark(node, 'data-state', j.state);
      mark(node, 'data-disposition', j.disposition ?? null);
      say(state, j.state);
      flag.hidden = !j.cancelled;
      put(id, j.id);
      put(kind, j.kind);
      put(owner, j.owner);
      mark(link, 'href', to(current(), j.id));
      const first = j.why?.[0];
      holder.hidden = !j.key || j.state === 'queued';
      put(holder, holder.hidden ? '' : j.key);
      say(why, j.state === 'queued' ? (first ? held(j.why) : '') : j.state === 'dropped' ? word(j.dropped ?? '') : '');
      why.title = why.textContent;
      mark(why, 'data-next', first?.code === 'next' ? 'true' : null);
      say(payload, j.payload ? bytes(j.payload) : '');
      say(result, [j.result ? bytes(j.result) : '', j.disposition ? word(j.disposition) : ''].filter(Boolean).join(' · '));
      tick();
    },
  };
}

// down shows the time that is left until a moment of the relay's clock.
function down(node, until, now) {
  if (!until) {
    say(node, '');
    mark(node, 'data-late', null);
    return;
  }
  say(node, brief(until - now));
  mark(node, 'data-late', until - now < 5000 ? 'true' : null);
}
