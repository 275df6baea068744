// Texts of clients, made harmless to look at. Nothing here or elsewhere on the page turns a text into markup: texts reach
// the document as text nodes only. What is left are characters that can't be seen or that move others: each is shown by
// its number instead.

const hidden = new RegExp(
  '[' +
    '\\u0000-\\u001f\\u007f-\\u009f' + // controls, line ends too
    '\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f' + // soft hyphen, joiners, fillers
    '\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f' + // widthless, separators, directions
    '\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb' +
    '\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}' + // shorthand, music, tags and selectors
    '\\p{Cs}\\p{Co}\\p{Cn}' + // halves of pairs, private use, unassigned
    ']', 'gu');

// More marks on one letter than any script needs would reach into other lines.
const heaped = /(\p{M}{4})\p{M}+/gu;

const name = (c) => 'U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');

// parts splits a text into what is shown as it is and what is shown by its number: [{text}, {code}, ...].
export function parts(s) {
  const out = [];
  const text = String(s ?? '').replace(heaped, '$1');
  let at = 0;
  for (const m of text.matchAll(hidden)) {
    if (m.index > at) out.push({ text: text.slice(at, m.index) });
    out.push({ code: name(m[0]) });
    at = m.index + m[0].length;
  }
  if (at < text.length) out.push({ text: text.slice(at) });
  return out;
}

// inert is the same as one line of text, for names that assistive technology reads.
export function inert(s) {
  return parts(s).map((p) => p.text ?? `[${p.code}]`).join('');
}
