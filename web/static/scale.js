// From points to lines. All of it is pure.

// spread answers one value for each span of time until now, oldest first, null where nothing is known: before the first point,
// too. The span that isn't over counts by the part of it that is.
export function spread(chart, now, fields, slots = 90) {
  const { bucketMs } = chart;
  const last = Math.floor(now / bucketMs) * bucketMs;
  const byTime = new Map(chart.points.map((p) => [p.t, p]));
  const first = Math.min(...chart.points.map((p) => p.t));
  const times = Array.from({ length: slots }, (_, i) => last - (slots - 1 - i) * bucketMs);
  const series = fields.map((f) => times.map((t) => {
    const p = byTime.get(t);
    const seconds = t === last ? Math.max(1, Math.min(bucketMs, now - t) / 1000) : bucketMs / 1000;
    return p || t > first ? f(p ?? {}, seconds) : null;
  }));
  return { times, series, slots };
}

// nice answers the next round number that holds n.
export function nice(n) {
  if (!(n > 0)) return 0;
  const size = 10 ** Math.floor(Math.log10(n));
  for (const step of [1, 2, 2.5, 5]) if (n <= step * size) return step * size;
  return 10 * size;
}

const at = (v, top, height) => (height - 1 - (top ? v / top : 0) * (height - 3)).toFixed(1);

// line answers the path through values, with gaps where there are none; a lone value is a short dash.
export function line(values, top, width, height) {
  const step = width / (values.length - 1);
  let path = '', open = false;
  values.forEach((v, i) => {
    if (v === null || v === undefined) {
      open = false;
      return;
    }
    const x = (i * step).toFixed(1), y = at(v, top, height);
    const alone = !open && (values[i + 1] === null || values[i + 1] === undefined);
    path += `${open ? 'L' : 'M'}${x} ${y}${alone ? 'h1.5' : ''}`;
    open = true;
  });
  return path;
}

// area answers the surface below values; where there are none it is at the ground.
export function area(values, top, width, height) {
  const step = width / (values.length - 1);
  const points = values.map((v, i) => `L${(i * step).toFixed(1)} ${at(v ?? 0, top, height)}`);
  return `M0 ${height}${points.join('')}L${width} ${height}Z`;
}
