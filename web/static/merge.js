// What an update changes of what the page knows. All of it is pure: the old is left as it was.

// rows takes a section of rows. Only rows of the window are kept; fresh ones replace what is known of them.
export function rows(known, part, fresh) {
  const byHandle = new Map();
  const old = fresh || !known ? new Map() : known.byHandle;
  const changed = new Map(part.changed.map((r) => [r.n, r]));
  const order = [];
  for (const n of part.order) {
    const row = changed.get(n) ?? old.get(n);
    if (!row) continue;
    byHandle.set(n, row);
    order.push(n);
  }
  return {
    total: part.total, from: part.from, order, byHandle,
    loaded: part.loaded, loading: !!part.loading, full: !!part.full,
    changed: [...changed.keys()].filter((n) => byHandle.has(n)),
  };
}

// chart takes points: later ones of the same time win, and what is older than the window goes.
export function chart(known, part, buckets = 90) {
  const points = new Map((known?.points ?? []).map((p) => [p.t, p]));
  for (const p of part.points) points.set(p.t, p);
  const sorted = [...points.values()].sort((a, b) => a.t - b.t);
  const last = sorted.at(-1)?.t ?? 0;
  return {
    bucketMs: part.bucketMs, p50: part.p50, p99: part.p99,
    points: sorted.filter((p) => p.t > last - buckets * part.bucketMs),
  };
}

// update takes a whole message into the state of a page.
export function update(state, u) {
  const next = u.fresh ? { now: u.now } : { ...state, now: u.now };
  if (u.rows) next.rows = rows(state.rows, u.rows, u.fresh);
  if (u.site) next.site = u.site;
  if (u.chart) next.chart = chart(u.fresh ? null : state.chart, u.chart);
  if (u.job) next.job = u.job;
  if (u.sites) next.sites = u.sites;
  return next;
}
