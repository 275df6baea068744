// What is looked at, as an address: #site=ID&job=ID. It names nothing secret, and never reaches the relay's log.

// parse answers {site, job}, null for what isn't named.
export function parse(hash) {
  const q = new URLSearchParams(hash.replace(/^#/, ''));
  const site = q.get('site') || null;
  return { site, job: site === null ? null : q.get('job') || null };
}

// to answers the address of a site, or of a job of it.
export function to(site, job = null) {
  const q = new URLSearchParams({ site });
  if (job !== null) q.set('job', job);
  return '#' + q;
}
