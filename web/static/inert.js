// Texts of clients, made harmless to look at. Nothing here or elsewhere on the page turns a text into markup: texts reach
// the document as text nodes only. What is left are characters that can't be seen or that move others: each is shown by
// its number instead.

// Controls (line ends too), formats (directions, joiners), halves of pairs, private and unassigned ones, separators of lines
// and paragraphs, and whatever else may be left undrawn, like fillers and selectors.
const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

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
