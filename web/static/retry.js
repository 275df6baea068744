// When to dial again. All of it is pure.

const least = 500, most = 8000;

// wait answers how long to wait before the nth attempt in a row, with full jitter: after a restart of the relay the pages
// don't come back all at once.
export function wait(attempt, random = Math.random) {
  return least + random() * (Math.min(most, least * 2 ** attempt) - least);
}

// staleAfter is how long silence lasts before the page says so; the relay says something every second.
export const staleAfter = 4000;
