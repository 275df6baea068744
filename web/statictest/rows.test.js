import assert from 'node:assert/strict';
import test from 'node:test';
import * as merge from '../static/merge.js';
import * as win from '../static/window.js';

test('a window holds what is in sight and as much around it, within the server’s bound', () => {
  for (const height of [0, 40, 600, 900, 4000, 100_000]) {
    for (const top of [-50, 0, 17, 3400, 1e6]) {
      const w = win.slice({ top, height, rowHeight: 34 });
      const first = Math.floor(Math.max(0, top) / 34), inSight = Math.ceil(height / 34) + 1;
      assert.ok(w.from >= 0 && w.from <= first);
      assert.ok(w.rows <= 200);
      if (inSight < 190) assert.ok(w.from + w.rows >= first + inSight);
    }
  }
});

test('another window is asked for only when it is needed', () => {
  const at = (top) => win.slice({ top, height: 680, rowHeight: 34 });
  assert.ok(win.far(null, at(0)));
  assert.ok(!win.far(at(3400), at(3400)));
  assert.ok(!win.far(at(3400), at(3434)));
  assert.ok(win.far(at(3400), at(4420)));
  assert.ok(win.far(at(0), win.slice({ top: 0, height: 900, rowHeight: 34 })));
});

test('spacers stand for all other rows', () => {
  assert.deepEqual(win.spacers({ total: 50_000, from: 100, shown: 60, rowHeight: 34 }), { above: 3400, below: 49_840 * 34 });
  assert.deepEqual(win.spacers({ total: 3, from: 0, shown: 3, rowHeight: 34 }), { above: 0, below: 0 });
});

test('a row is brought into sight by the shortest way', () => {
  const view = { top: 340, height: 340, rowHeight: 34 };
  assert.equal(win.reveal({ index: 12, ...view }), 340);
  assert.equal(win.reveal({ index: 3, ...view }), 102);
  assert.equal(win.reveal({ index: 20, ...view }), 374);
});

const part = (order, changed, more = {}) => ({ total: order.length, from: 0, order, changed: changed.map((n) => ({ n, id: `j${n}`, v: more.v })), loaded: order.length, ...more });

test('rows are kept by their handles, and only those of the window', () => {
  let rows = merge.rows(null, part([1, 2, 3], [1, 2, 3]), true);
  assert.deepEqual(rows.order, [1, 2, 3]);
  const before = rows.byHandle.get(2);
  rows = merge.rows(rows, part([2, 3, 4], [3, 4], { v: 2 }), false);
  assert.deepEqual([...rows.byHandle.keys()], [2, 3, 4]);
  assert.equal(rows.byHandle.get(2), before, 'what didn’t change is the same');
  assert.equal(rows.byHandle.get(3).v, 2);
  assert.deepEqual(rows.changed, [3, 4]);
});

test('a fresh window has nothing of the last one', () => {
  const old = merge.rows(null, part([1], [1]), true);
  assert.deepEqual(merge.rows(old, part([1, 2], [2]), true).order, [2]);
  assert.deepEqual(merge.rows(old, part([1, 2], [2]), false).order, [1, 2]);
});

test('later points win, and old ones go', () => {
  let chart = merge.chart(null, { bucketMs: 10, points: [{ t: 10, in: 1 }, { t: 20, in: 1 }], p50: 1, p99: 2 }, 3);
  chart = merge.chart(chart, { bucketMs: 10, points: [{ t: 20, in: 5 }, { t: 30 }], p50: 3, p99: 4 }, 3);
  assert.deepEqual(chart.points, [{ t: 10, in: 1 }, { t: 20, in: 5 }, { t: 30 }]);
  chart = merge.chart(chart, { bucketMs: 10, points: [{ t: 40 }], p50: 3, p99: 4 }, 3);
  assert.deepEqual(chart.points.map((p) => p.t), [20, 30, 40]);
  assert.deepEqual(merge.chart(chart, { bucketMs: 10, points: [] }, 3).points.length, 3);
});

test('updates leave what they don’t name', () => {
  const first = merge.update({}, { now: 1, fresh: true, rows: part([1], [1]), site: { id: 's' }, chart: { bucketMs: 10, points: [] } });
  const next = merge.update(first, { now: 2, job: { id: 'j' } });
  assert.equal(next.site, first.site);
  assert.equal(next.rows, first.rows);
  assert.equal(next.now, 2);
  assert.equal(first.job, undefined);
  const fresh = merge.update(next, { now: 3, fresh: true, sites: [] });
  assert.deepEqual(Object.keys(fresh).sort(), ['now', 'sites']);
});
