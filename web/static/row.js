// One row of the table of jobs.
import { to } from './address.js';
import * as clock from './clock.js';
import { el, mark, put, say } from './dom.js';
import { brief, bytes } from './format.js';
import { held, states, word } from './reasons.js';

const current = () => new URLSearchParams(location.hash.slice(1)).get('site') ?? '';

// How long a job that ended is shown plainly before its row fades; the relay takes it away some seconds later.
const fadeAfter = { collected: 5000, dropped: 52_000 };

// Columns: state, job, kind, owner, holder or why, in state, window, lease, deadline, payload, result.
export function makeRow() {
  const cell = (name, ...children) => el('td', { role: 'cell', class: name }, ...children);
  const link = el('a', { tabindex: -1 });
  const id = el('bdi', { class: 'foreign' }), kind = el('bdi', { class: 'foreign' }), owner = el('bdi', { class: 'foreign' });
  const state = el('span', { class: 'state' }), flag = el('span', { class: 'flag', hidden: true }, 'cancel');
  const holder = el('bdi', { class: 'foreign key' }), why = el('span', { class: 'why' });
  const since = cell('since number'), window = cell('window number'), lease = cell('lease number'), deadline = cell('deadline number');
  const payload = cell('payload number'), result = cell('result');
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
    mark(node, 'data-fading', Object.hasOwn(fadeAfter, job.state) && now - job.since > fadeAfter[job.state] ? 'true' : null);
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
      say(why, reason(j));
      why.title = why.textContent;
      mark(why, 'data-calm', j.state !== 'queued' && j.state !== 'dropped' || first?.code === 'next' ? 'true' : null);
      say(payload, j.payload ? bytes(j.payload) : '');
      say(result, [j.result ? bytes(j.result) : '', j.disposition ? word(j.disposition) : ''].filter(Boolean).join(' · '));
      tick();
    },
  };
}

// reason answers why a job waits or was dropped, or what goes on while its holder isn't known.
function reason(j) {
  if (j.state === 'queued') return j.why?.length ? held(j.why) : '';
  if (j.state === 'dropped') return word(j.dropped ?? '');
  return j.key ? '' : states[j.state] ?? '';
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
