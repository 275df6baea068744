import assert from 'node:assert/strict';
import test from 'node:test';
import { inert, parts } from '../static/inert.js';

test('plain texts of any script stay as they are', () => {
  for (const s of ['job-1', 'a b', '<b>&amp;"\'', 'größe', 'עברית', 'العربية', '日本語', '😀', 'é', 'नमस्ते']) assert.equal(inert(s), s);
});

test('what can’t be seen or moves others is shown by its number', () => {
  const codes = [0, 7, 9, 0xa, 0xd, 0x1b, 0x7f, 0x85, 0x9b, 0xad, 0x61c, 0x200b, 0x200d, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202e, 0x2060, 0x2066,
    0x2069, 0x3164, 0xfe0f, 0xfeff, 0xfffb, 0xe000, 0xe0041, 0xe0100, 0x1d173, 0xfdd0, 0x10ffff];
  for (const code of codes) {
    const name = 'U+' + code.toString(16).toUpperCase().padStart(4, '0');
    assert.deepEqual(parts(`a${String.fromCodePoint(code)}b`), [{ text: 'a' }, { code: name }, { text: 'b' }]);
  }
});

test('halves of pairs are shown by their number', () => {
  assert.equal(inert('a\ud800b'), 'a[U+D800]b');
  assert.equal(inert('\udc00'), '[U+DC00]');
});

test('marks don’t heap up', () => {
  const heap = 'e' + '\u0301'.repeat(500);
  assert.ok([...inert(heap)].length <= 5);
});

test('nothing is nothing', () => {
  for (const s of ['', null, undefined]) assert.deepEqual(parts(s), []);
  assert.equal(inert(0), '0');
});

test('no text of any length or kind comes out with a hidden character', () => {
  let seed = 42;
  const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  for (let i = 0; i < 500; i++) {
    const s = Array.from({ length: random(40) }, () => String.fromCodePoint([random(0x80), random(0x3000), random(0x110000)][random(3)])).join('');
    assert.doesNotMatch(inert(s), /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/u, JSON.stringify(s));
  }
});
