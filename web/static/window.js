// Which rows of a long list are in the document. All of it is pure.

// slice answers which rows to ask for: those in sight and as many around them, within the bounds of the server.
export function slice({ top, height, rowHeight, most = 200 }) {
  const inSight = Math.max(1, Math.ceil(height / rowHeight) + 1);
  const around = Math.max(4, Math.min(inSight, Math.floor((most - inSight) / 2)));
  const rows = Math.min(most, inSight + 2 * around);
  const from = Math.max(0, Math.floor(Math.max(0, top) / rowHeight) - around);
  return { from, rows, around };
}

// far reports whether what is asked for is so far from what is wanted that it must be asked anew.
export function far(asked, wanted) {
  return !asked || asked.rows !== wanted.rows || Math.abs(asked.from - wanted.from) >= Math.max(1, wanted.around / 2);
}

// spacers answers the heights above and below the rows that are in the document.
export function spacers({ total, from, shown, rowHeight }) {
  return { above: from * rowHeight, below: Math.max(0, total - from - shown) * rowHeight };
}

// reveal answers the scroll position that brings a row into sight, or the old one when it is.
export function reveal({ index, top, height, rowHeight }) {
  const begin = index * rowHeight, end = begin + rowHeight;
  if (begin < top) return begin;
  if (end > top + height) return end - height;
  return top;
}
