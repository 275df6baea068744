// The last 15 minutes as small drawings.
import { el, say, svg } from './dom.js';
import { clock, count, micros, rate } from './format.js';
import { area, line, nice, spread } from './scale.js';

const width = 300, height = 72;

const persec = (field) => (p, seconds) => (p[field] ?? 0) / seconds;

// sum adds up what is known of a member.
const sum = (points, ...fields) => count(points.reduce((n, p) => n + fields.reduce((m, f) => m + (p[f] ?? 0), 0), 0));

const kinds = [
  {
    name: 'Jobs a second', tell: rate, fill: 'in',
    lines: [
      ['in', 'new', persec('in')],
      ['ok', 'done', persec('ok')],
      // with what was canceled or dropped: none of them has its answer
      ['bad', 'failed', (p, s) => ((p.failed ?? 0) + (p.canceled ?? 0) + (p.dropped ?? 0)) / s],
      ['back', 'given back', persec('returned')],
    ],
    all: (c) => `${sum(c.points, 'in')} new, ${sum(c.points, 'ok')} done, ${sum(c.points, 'failed', 'canceled', 'dropped')} failed`,
  },
  {
    name: 'Enqueued to result', tell: micros, fill: 'half',
    lines: [['half', 'p50', (p) => p.p50 || null], ['slow', 'p99', (p) => p.p99 || null]],
    all: (c) => (c.p50 ? `half of the results within ${micros(c.p50)}, 99 % within ${micros(c.p99)}` : 'no results'),
  },
  {
    name: 'Depth', tell: count, fill: 'wait',
    lines: [['wait', 'queued', (p) => p.queued ?? null], ['held', 'with devices', (p) => p.held ?? null]],
    all: (c) => `at most ${count(Math.max(0, ...c.points.map((p) => p.queued ?? 0)))} queued, ${count(Math.max(0, ...c.points.map((p) => p.held ?? 0)))} with devices`,
  },
];

// chartsView draws the charts into root.
export function chartsView(root) {
  const drawn = kinds.map((kind) => one(kind));
  root.replaceChildren(...drawn.map((d) => d.node));
  return {
    draw(chart, now) {
      if (chart) drawn.forEach((d) => d.draw(chart, now));
    },
  };
}

function one(kind) {
  const paths = kind.lines.map(([name]) => svg('path', { class: `line ${name}`, 'vector-effect': 'non-scaling-stroke' }));
  const filled = svg('path', { class: `area ${kind.fill}` });
  const cursor = svg('line', { class: 'cursor', y1: 0, y2: height, visibility: 'hidden', 'vector-effect': 'non-scaling-stroke' });
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', focusable: 'false' },
    svg('line', { class: 'base', x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5, 'vector-effect': 'non-scaling-stroke' }),
    filled, paths, cursor);
  const most = el('span', { class: 'most' }), when = el('span', { class: 'when' }, 'now'), all = el('p', { class: 'all' });
  const values = kind.lines.map(([name, text]) => {
    const value = el('b');
    return { value, node: el('li', { class: name }, el('i', { 'aria-hidden': 'true' }), text, ' ', value) };
  });
  const node = el('section', { class: 'chart' },
    el('div', { class: 'top' }, el('h3', {}, kind.name), most), picture,
    el('div', { class: 'axis', 'aria-hidden': 'true' }, el('span', {}, '15 min ago'), when),
    el('ul', { class: 'legend' }, values.map((v) => v.node)), all);
  let data = null;

  picture.addEventListener('pointermove', (event) => {
    if (!data?.times.length) return;
    const box = picture.getBoundingClientRect();
    const at = Math.round(((event.clientX - box.left) / box.width) * (data.slots - 1));
    point(Math.max(0, Math.min(at, data.slots - 1)));
  });
  picture.addEventListener('pointerleave', () => point(null));

  // point shows the values of one moment, or the last ones.
  function point(at) {
    cursor.setAttribute('visibility', at === null ? 'hidden' : 'visible');
    if (at !== null) {
      const x = (at / (data.slots - 1)) * width;
      cursor.setAttribute('x1', x);
      cursor.setAttribute('x2', x);
    }
    say(when, at === null ? 'now' : `at ${clock(data.times[at])}`);
    values.forEach((v, i) => {
      const series = data.series[i];
      const n = at === null ? series.findLast((x) => x !== null) : series[at];
      say(v.value, n === null || n === undefined ? '–' : kind.tell(n));
    });
  }

  return {
    node,
    draw(chart, now) {
      data = spread(chart, now, kind.lines.map(([, , f]) => f));
      const top = nice(Math.max(0, ...data.series.flat().filter((v) => v !== null)));
      data.series.forEach((values, i) => paths[i].setAttribute('d', values.some(Boolean) ? line(values, top, width, height) : ''));
      filled.setAttribute('d', area(data.series[0], top, width, height));
      say(most, top ? `up to ${kind.tell(top)}` : '');
      say(all, `15 min: ${kind.all(chart)}`);
      point(null);
      const told = values.map((v, i) => `${kind.lines[i][1]} ${v.value.textContent}`).join(', ');
      picture.setAttribute('aria-label', `${kind.name}, last 15 minutes. Now: ${told}. At most ${top ? kind.tell(top) : 'nothing'}.`);
    },
  };
}
