// The history of one job, and why it doesn't move.
import * as clock from './clock.js';
import { el, foreign, put, say } from './dom.js';
import { bytes, instant, span, step } from './format.js';
import { obstacle, states, steps, word } from './reasons.js';

// drawer draws into root until signal; closed is called when the reader closes it.
export function drawer(root, closed, signal) {
  const title = root.querySelector('h2'), body = root.querySelector('.body'), copy = root.querySelector('.copy');
  let shown = null, job = null, before = null;

  root.querySelector('.close').addEventListener('click', closed, { signal });
  root.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') closed();
  }, { signal });
  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      copy.textContent = 'Copied';
    } catch {
      copy.textContent = 'Copy it from the address bar';
    }
    setTimeout(() => { copy.textContent = 'Copy link'; }, 2000);
  }, { signal });

  function facts(j) {
    const rows = [];
    const add = (name, value) => {
      if (value !== '' && value !== null && value !== undefined) rows.push(el('dt', {}, name), el('dd', {}, value));
    };
    const text = (s) => (s ? foreign(s) : null);
    add('Owner', text(j.owner));
    add('Kind', text(j.kind));
    add('Audience', text(j.audience));
    add('Size class', text(j.size));
    add('Purpose', text(j.purpose));
    add('Streaming', j.streaming ? 'yes' : null);
    add('Protocol version', text(j.dialect));
    add('Site key', text(j.siteKey));
    add('Runner', text(j.runner));
    add('Device key', text(j.key));
    add('Lease id', text(j.leaseId));
    add('Enqueued', j.enqueued ? instant(j.enqueued) : null);
    add('Deadline', until(j.deadline, j.state));
    add('Seal expected', until(j.window, j.state));
    add('Accept expected', until(j.offer, j.state));
    add('Lease ends', until(j.lease, j.state));
    add('Payload, sealed', j.payload ? bytes(j.payload) : null);
    add('Result, sealed', j.result ? bytes(j.result) : null);
    add('Result says', j.disposition ? word(j.disposition) : null);
    add('Waits for a seal in vain', j.waits || null);
    add('Leases that lapsed', j.lapses || null);
    add('Payload taken', j.takes ? `${j.takes}×` : null);
    return el('dl', { class: 'facts' }, rows);
  }

  // until is a moment with what is left of it, which tick moves.
  function until(ms, state) {
    if (!ms || ['done', 'collected', 'dropped'].includes(state)) return null;
    return el('span', {}, instant(ms), ' ', el('span', { class: 'left', 'data-until': ms }));
  }

  function reasons(j) {
    if (j.state !== 'queued') {
      const text = j.cancelled ? `${states[j.state]}; its site asked to cancel it` : states[j.state];
      return el('p', { class: 'means' }, `This job is ${j.state}: ${text}${j.dropped ? `, because ${word(j.dropped)}` : ''}.`);
    }
    if (!j.why?.length) return el('p', { class: 'means' }, 'Looking for what holds it up…');
    return el('ul', { class: 'reasons' }, j.why.map((o) => {
      const { text, todo } = obstacle(o);
      const ends = o.until ? el('span', {}, ' Ends in ', el('span', { 'data-until': o.until, 'data-plain': true }), '.') : null;
      return el('li', { 'data-code': o.code }, el('strong', {}, text[0].toUpperCase() + text.slice(1) + '.'), ends, el('span', { class: 'todo' }, ' ' + todo));
    }));
  }

  function history(line, j) {
    if (!line) return [el('p', { class: 'note' }, 'Its steps aren’t kept: it moved before this relay started, or many others moved since.')];
    const out = [];
    if (!line.whole) out.push(el('p', { class: 'note' }, `Earlier steps aren’t kept${j?.enqueued ? `; it was enqueued at ${instant(j.enqueued)}` : ''}.`));
    if (line.missed?.length) out.push(el('p', { class: 'note' }, `This relay missed changes at ${line.missed.map(instant).join(', ')}; steps may be missing.`));
    const rows = [];
    line.steps.forEach((s, i) => {
      if (line.skipped && i === line.first) rows.push(el('tr', {}, el('td', { colspan: 4, class: 'gap' }, `${line.skipped} steps in between aren’t kept`)));
      const ago = i ? step(s.at - line.steps[i - 1].at) : '';
      const name = s.what === 'queued' && i ? 'queued again' : steps[s.what] ?? s.what;
      rows.push(el('tr', { 'data-step': s.what }, el('td', { class: 'at' }, instant(s.at)), el('td', { class: 'after' }, ago),
        el('th', { scope: 'row' }, name), el('td', {}, who(s), who(s) && s.word ? ' – ' : null, s.word ? word(s.word) : null)));
    });
    out.push(el('table', {}, el('caption', {}, 'Every step, as this relay heard of it'),
      el('thead', {}, el('tr', {}, ['Time', 'After', 'Step', 'Who and why'].map((h) => el('th', { scope: 'col' }, h)))), el('tbody', {}, rows)));
    return out;
  }

  // who did a step; collecting is the site's doing.
  const who = (s) => (s.runner && s.what !== 'collected' ? foreign(s.runner) : null);

  function tick() {
    for (const node of body.querySelectorAll('[data-until]')) {
      const left = Number(node.dataset.until) - clock.now();
      if ('plain' in node.dataset) say(node, span(Math.max(0, left)));
      else say(node, left > 0 ? `(${span(left)})` : `(${span(-left)} ago)`);
    }
  }

  return {
    tick,
    // open shows the frame of a job whose details are on their way; null closes it.
    open(id) {
      if (id === shown) return;
      if (shown === null) before = document.activeElement;
      shown = id;
      job = null;
      root.hidden = id === null;
      if (id === null) {
        if (before?.isConnected) before.focus();
        return;
      }
      put(title, id);
      body.replaceChildren(el('p', { class: 'note' }, 'Loading…'));
      title.focus();
    },
    draw(j) {
      if (shown === null || j?.id !== shown || j === job) return;
      job = j;
      if (j.missing) {
        body.replaceChildren(el('p', {}, 'This relay doesn’t know this job (any more). Its site may not have enqueued it yet, or it ended long ago.'));
        return;
      }
      body.replaceChildren(j.job ? reasons(j.job) : el('p', { class: 'means' }, 'The job is gone; what is kept are its steps.'),
        ...history(j.timeline, j.job), j.job ? facts(j.job) : '');
      tick();
    },
  };
}
