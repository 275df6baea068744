// The list of sites.
import { to } from './address.js';
import { arrange, el, foreign, say } from './dom.js';
import { bytes, count, counted } from './format.js';

const states = ['queued', 'awaiting', 'ready', 'running', 'done'];

// number is a cell that is named by its column, for screens that are too narrow for one.
const number = (name) => el('td', { role: 'cell', class: 'number', 'data-name': name });

// sitesView draws into root; look is called when what is looked at changed.
export function sitesView(root, look) {
  const body = root.querySelector('tbody'), field = root.querySelector('input'), note = root.querySelector('.note');
  const rows = new Map();
  const changed = () => look();
  field.value = '';
  field.addEventListener('input', changed);

  function line(s) {
    let row = rows.get(s.id);
    if (!row) {
      const cells = states.map(number);
      row = { presence: el('td', { role: 'cell', class: 'presence' }), cells, size: number('sealed'), notices: number('notices') };
      row.node = el('tr', { role: 'row' }, el('th', { role: 'rowheader', scope: 'row' }, el('a', { href: to(s.id) }, foreign(s.id))), row.presence, ...cells, row.notices, row.size);
      rows.set(s.id, row);
    }
    const here = s.sessions ? counted(s.sessions, 'session') : s.present ? 'present elsewhere' : 'absent';
    row.presence.dataset.ok = String(s.present);
    say(row.presence, s.known ? here : `${here}, not in the projection`);
    states.forEach((name, i) => {
      const n = s.counts[name] ?? 0;
      say(row.cells[i], count(n));
      row.cells[i].classList.toggle('zero', n === 0);
    });
    say(row.notices, count(s.notices));
    row.notices.classList.toggle('zero', s.notices === 0);
    say(row.size, bytes(s.bytes));
    return row.node;
  }

  return {
    look: () => ({ text: field.value, from: 0, rows: 0 }),
    open() {},
    tick() {},
    draw(state) {
      if (!state.sites) return;
      const { list, total } = state.sites;
      arrange(body, list.map(line));
      const kept = new Set(list.map((s) => s.id));
      for (const id of rows.keys()) if (!kept.has(id)) rows.delete(id);
      say(note, total > list.length ? `${count(list.length)} of ${counted(total, 'site')} are shown; filter to find others.`
        : total ? counted(total, 'site') : field.value ? 'No site has this in its id.' : 'The projection has no sites, and nothing is kept of others. Sites that are added to it appear here at once.');
    },
    close() {
      field.removeEventListener('input', changed);
      body.replaceChildren();
    },
  };
}
