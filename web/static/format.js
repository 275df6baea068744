// Numbers and times for people. All of it is pure.

const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

// span tells a duration of milliseconds in its two largest units: 1 h 5 min, 12 s, 0.4 s.
export function span(ms) {
  const sign = ms < 0 ? '−' : '';
  ms = Math.abs(ms);
  if (ms < 950) return `${sign}${(ms / 1000).toFixed(1)} s`;
  let left = Math.round(ms / 1000);
  const out = [];
  for (const [name, size] of units) {
    const n = Math.floor(left / size);
    if (n > 0) out.push(`${n} ${name}`);
    else if (out.length) break;
    left -= n * size;
    if (out.length === 2) break;
  }
  return sign + out.join(' ');
}

// brief tells a duration of milliseconds as short as a column of a table wants it: 43 s, 9:42, 3 h 12, 6 d 3 h.
export function brief(ms) {
  const late = ms < 0 ? '−' : '';
  const s = Math.floor(Math.abs(ms) / 1000), min = Math.floor(s / 60), h = Math.floor(min / 60);
  if (s < 60) return `${late}${s} s`;
  if (h < 1) return `${late}${min}:${two(s % 60)}`;
  if (h < 24) return `${late}${h} h ${two(min % 60)}`;
  return `${late}${Math.floor(h / 24)} d ${h % 24} h`;
}

// step tells a short duration to the millisecond.
export const step = (ms) => (Math.abs(ms) < 1000 ? `${Math.round(ms)} ms` : span(ms));

// micros tells a latency of microseconds.
export function micros(us) {
  if (!us) return '–';
  if (us < 1000) return `${us} µs`;
  if (us < 10_000) return `${(us / 1000).toFixed(1)} ms`;
  if (us < 1_000_000) return `${Math.round(us / 1000)} ms`;
  if (us < 10_000_000) return `${(us / 1e6).toFixed(1)} s`;
  return span(us / 1000);
}

// bytes tells a size.
export function bytes(n) {
  if (!n) return '–';
  if (n < 1024) return `${n} B`;
  for (const unit of ['KiB', 'MiB', 'GiB', 'TiB']) {
    n /= 1024;
    if (n < 1024 || unit === 'TiB') return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
  }
  return '';
}

// count tells a number with groups of three.
export const count = (n) => Math.round(n ?? 0).toString().replace(/\B(?=(\d{3})+$)/g, ' ');

// rate tells so many a second.
export function rate(n) {
  if (!n) return '0';
  if (n < 10) return n.toFixed(1);
  return count(n);
}

const two = (n) => String(n).padStart(2, '0');

// clock tells a time of day in the reader's zone.
export function clock(ms) {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

// instant is clock with milliseconds.
export const instant = (ms) => `${clock(ms)}.${String(Math.floor(ms % 1000)).padStart(3, '0')}`;

// counted is a number with its word: 1 job, 2 jobs.
export const counted = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;
