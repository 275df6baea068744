import assert from 'node:assert/strict';
import test from 'node:test';
import { parse, to } from '../static/address.js';
import { brief, bytes, count, counted, micros, rate, span, step } from '../static/format.js';
import { held, obstacle, obstacleCodes, word } from '../static/reasons.js';
import { staleAfter, wait } from '../static/retry.js';
import { area, line, nice, spread } from '../static/scale.js';

test('durations', () => {
  const cases = { 0: '0.0 s', 400: '0.4 s', 949: '0.9 s', 950: '1 s', 59_000: '59 s', 60_000: '1 min', 61_000: '1 min 1 s', 3_600_000: '1 h', 3_660_000: '1 h 1 min', 90_061_000: '1 d 1 h' };
  for (const [ms, text] of Object.entries(cases)) assert.equal(span(Number(ms)), text);
  assert.equal(span(-5000), '−5 s');
  assert.equal(step(12.4), '12 ms');
  assert.equal(step(2000), '2 s');
  assert.deepEqual([0, 59_999, 60_000, 3_599_000, 3_600_000, 86_400_000, -3000].map(brief), ['0 s', '59 s', '1:00', '59:59', '1 h 00', '1 d 0 h', '−3 s']);
});

test('numbers', () => {
  assert.deepEqual([0, 999, 1500, 12_000, 1_500_000, 90e6].map(micros), ['–', '999 µs', '1.5 ms', '12 ms', '1.5 s', '1 min 30 s']);
  assert.deepEqual([0, 10, 1024, 1536, 6 << 20, 3 * 2 ** 40].map(bytes), ['–', '10 B', '1.0 KiB', '1.5 KiB', '6.0 MiB', '3.0 TiB']);
  assert.deepEqual([0, 999, 1000, 1234567, undefined].map(count), ['0', '999', '1 000', '1 234 567', '0']);
  assert.deepEqual([0, 0.25, 12.3, 5000].map(rate), ['0', '0.3', '12', '5 000']);
  assert.equal(counted(1, 'job'), '1 job');
  assert.equal(counted(2000, 'job'), '2 000 jobs');
});

test('addresses name what they were made of', () => {
  for (const site of ['shop', 'a&b=c#d', '<b>', '\u202e', ' ', '%41']) {
    for (const job of [null, 'j', 'x&site=other', '#', '☃']) assert.deepEqual(parse(to(site, job)), { site, job });
  }
  assert.deepEqual(parse(''), { site: null, job: null });
  assert.deepEqual(parse('#'), { site: null, job: null });
  assert.deepEqual(parse('#job=j'), { site: null, job: null });
  assert.deepEqual(parse('#site=&job=j'), { site: null, job: null });
});

test('each reason has a text and something to do', () => {
  for (const code of obstacleCodes) {
    const { text, todo } = obstacle({ code, n: 1, of: 2 });
    assert.ok(text && todo, code);
  }
  for (const code of ['constructor', 'new-one', '__proto__']) assert.equal(obstacle({ code }).text, code);
  assert.equal(word('toString'), 'toString');
});

test('one line tells what holds a job up', () => {
  assert.equal(held([{ code: 'no-site-session' }, { code: 'all-busy', n: 1, of: 1 }]), 'no session of the site is open');
  assert.equal(held([{ code: 'all-busy', n: 2, of: 2 }]), 'all are busy');
  assert.equal(held([{ code: 'all-busy', n: 1, of: 3 }, { code: 'nobody-connected', n: 2, of: 3 }]), 'devices: 1 busy, 2 away');
});

test('attempts are spread, and never far apart', () => {
  for (let n = 0; n < 40; n++) {
    assert.ok(wait(n, () => 0) >= 500);
    assert.ok(wait(n, () => 1) <= 8000);
  }
  assert.ok(wait(5, () => 0.9) > wait(5, () => 0.1));
  assert.ok(staleAfter < 5000);
});

test('points become values for each span of time', () => {
  const chart = { bucketMs: 10_000, points: [{ t: 10_000, in: 20 }, { t: 30_000, in: 5, p50: 7 }] };
  const s = spread(chart, 35_000, [(p, seconds) => (p.in ?? 0) / seconds, (p) => p.p50 ?? null], 4);
  assert.deepEqual(s.times, [0, 10_000, 20_000, 30_000]);
  assert.deepEqual(s.series, [[null, 2, 0, 1], [null, null, null, 7]]); // what was before the first isn't known
  assert.deepEqual(spread({ bucketMs: 10_000, points: [] }, 35_000, [() => 0], 2).series, [[null, null]]);
});

test('axes end at round numbers', () => {
  assert.deepEqual([0, -1, NaN, 0.03, 1, 1.1, 2.2, 4, 7, 10, 60_001].map(nice), [0, 0, 0, 0.05, 1, 2, 2.5, 5, 10, 10, 100_000]);
});

test('lines have gaps where nothing is known', () => {
  assert.equal(line([0, 10], 10, 100, 50), 'M0.0 49.0L100.0 2.0');
  assert.equal(line([null, 5, null], 10, 100, 50), 'M50.0 25.5h1.5');
  assert.equal(line([1, null, 1, 1], 1, 90, 50), 'M0.0 2.0h1.5M60.0 2.0L90.0 2.0');
  assert.equal(line([0, 0], 0, 10, 10), 'M0.0 9.0L10.0 9.0');
  assert.equal(area([null, 10], 10, 100, 50), 'M0 50L0.0 49.0L100.0 2.0L100 50Z');
});
