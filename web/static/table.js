// The table of jobs: as long as the list is, only the rows in sight and some around them are in the document.
import { el, mark } from './dom.js';
import * as wanted from './window.js';
import { makeRow } from './row.js';

// jobTable draws into root. on has functions: look() when other rows are wanted, open(id) for a job that was chosen.
export function jobTable(root, on) {
  const table = root.querySelector('table'), body = table.querySelector('tbody');
  const above = el('tr', { class: 'space', 'aria-hidden': 'true', role: 'presentation' }, el('td', { colspan: 11 }));
  const below = above.cloneNode(true);
  body.replaceChildren(above, below);
  const nodes = new Map(); // by handle
  // going is the row that has the focus as soon as it is there: it may be far away.
  let rows = null, asked = null, chosen = null, focused = null, pending = false, going = null;

  const rowHeight = () => parseFloat(getComputedStyle(root).getPropertyValue('--row')) || 34;
  const measure = () => ({ top: root.scrollTop, height: root.clientHeight || 600, rowHeight: rowHeight() });

  function scrolled() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      const w = wanted.slice(measure());
      if (wanted.far(asked, w)) on.look();
    });
  }

  // draw takes the rows of the window. Nodes are kept by handle, so that focus and selection stay.
  function draw(next) {
    const inside = root.contains(document.activeElement);
    rows = next;
    const h = rowHeight();
    const { above: up, below: down } = wanted.spacers({ total: rows.total, from: rows.from, shown: rows.order.length, rowHeight: h });
    above.firstChild.style.height = `${up}px`;
    below.firstChild.style.height = `${down}px`;
    mark(table, 'aria-rowcount', rows.total + 1);
    for (const [n, row] of nodes) {
      if (!rows.byHandle.has(n)) {
        row.node.remove();
        nodes.delete(n);
      }
    }
    let at = above;
    rows.order.forEach((n, i) => {
      let row = nodes.get(n);
      if (!row) {
        row = makeRow();
        nodes.set(n, row);
      }
      row.fill(rows.byHandle.get(n));
      mark(row.node, 'aria-rowindex', rows.from + i + 2);
      if (at.nextSibling !== row.node) at.after(row.node);
      at = row.node;
    });
    choose(chosen);
    settle();
    if (!inside) return;
    if (going !== null) arrive();
    if (root.contains(document.activeElement)) return;
    // The row that had the focus is gone: its place in sight has it, or a keyboard would begin at the top of the page.
    (going === null && nodes.get(focused)?.link || root).focus({ preventScroll: true });
  }

  // choose marks the job whose history is shown.
  function choose(id) {
    chosen = id;
    for (const row of nodes.values()) mark(row.node, 'aria-current', row.id === id ? 'true' : null);
  }

  // settle lets exactly one row be reached by the tab key; arrows go on from there.
  function settle() {
    if (!focused || !nodes.has(focused)) focused = rows?.order[Math.min(rows.order.length - 1, firstInSight())] ?? null;
    for (const [n, row] of nodes) row.link.tabIndex = n === focused ? 0 : -1;
  }

  function firstInSight() {
    const { top, rowHeight: h } = measure();
    return Math.max(0, Math.ceil(top / h) - (rows?.from ?? 0));
  }

  function go(index) {
    going = Math.max(0, Math.min(index, rows.total - 1));
    root.scrollTop = wanted.reveal({ index: going, ...measure(), height: root.clientHeight - rowHeight() });
    arrive();
  }

  // arrive gives the focus to the row that was gone to, when it is there.
  function arrive() {
    going = Math.min(going, rows.total - 1);
    const n = rows.order[going - rows.from];
    if (n === undefined) return;
    going = null;
    focused = n;
    settle();
    nodes.get(n).link.focus({ preventScroll: true });
  }

  function keyed(event) {
    if (!rows?.order.length || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(root.clientHeight / rowHeight()) - 2);
    const here = going ?? rows.from + Math.max(0, rows.order.indexOf(focused));
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + page, PageUp: here - page, Home: 0, End: rows.total - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  }

  function focusedIn(event) {
    const row = [...nodes].find(([, r]) => r.node.contains(event.target));
    if (!row || going !== null) return;
    focused = row[0];
    settle();
  }

  function clicked(event) {
    const node = event.target.closest('tr');
    const row = [...nodes.values()].find((r) => r.node === node);
    if (!row || event.target.closest('a')) return; // a link opens by its address
    on.open(row.id);
  }

  const resized = new ResizeObserver(scrolled);
  resized.observe(root);
  root.addEventListener('scroll', scrolled, { passive: true });
  root.addEventListener('keydown', keyed);
  body.addEventListener('focusin', focusedIn);
  body.addEventListener('click', clicked);

  return {
    draw, choose,
    // look answers which rows are wanted, and remembers that they were asked for.
    look() {
      asked = wanted.slice(measure());
      return { from: asked.from, rows: asked.rows };
    },
    top() {
      going = null;
      root.scrollTop = 0;
    },
    tick() {
      for (const row of nodes.values()) row.tick();
    },
    close() {
      resized.disconnect();
      root.removeEventListener('scroll', scrolled);
      root.removeEventListener('keydown', keyed);
      body.removeEventListener('focusin', focusedIn);
      body.removeEventListener('click', clicked);
      body.replaceChildren();
    },
  };
}
