// A daemon that answers each job with its prompt in ASCII upper case.
//   node daemon.mjs --relay http://127.0.0.1:8080 --key device.key --runner runner-a1 --state state
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, readdirSync, renameSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Connection, Cut } from './client.mjs';
import { Key, checkIdentity, follows, open, seal, sha256 } from './sealing.mjs';

const { values: args } = parseArgs({
  options: {
    relay: { type: 'string' }, key: { type: 'string' }, runner: { type: 'string' }, state: { type: 'string' },
    slots: { type: 'string', default: '1' }, dialect: { type: 'string', default: '2' },
    pin: { type: 'string', multiple: true }, // key ids of sites; without it, every site that the relay names is served
    delay: { type: 'string', default: '0' }, // milliseconds of pretended work
    record: { type: 'string' }, // file for all frames
  },
});
for (const name of ['relay', 'key', 'runner', 'state']) {
  if (!args[name]) throw new Error(`--${name} is missing: see the example at the top of this file`);
}
const log = (event, fields = {}) => console.error(JSON.stringify({ event, ...fields }));
const key = Key.load(args.key);

// What this daemon holds, by grant and not by job: the same job may come back under another lease. A grant is in `work`
// from its claim until its result is written, then in `results` until that is answered.
const nameOf = ({ jobId, leaseId }) => JSON.stringify([jobId, leaseId]);
const work = new Map(); // name -> {grant, stub, taken, abort}
const results = new Map(); // name -> {grant, envelope, disposition}
const delivering = new Set();
let sites = {}, successions = {}, heartbeat;

// --- results on disk: one that is finished must survive this process, since nobody else can make it again

const fileOf = (name) => join(args.state, `${sha256(name).toString('hex')}.json`);

function keep(name, result) {
  const part = `${fileOf(name)}.part`; // a restart doesn't take it for a result
  const fd = openSync(part, 'w', 0o600);
  writeSync(fd, JSON.stringify(result));
  fsyncSync(fd);
  closeSync(fd);
  renameSync(part, fileOf(name));
  results.set(name, result);
}

mkdirSync(args.state, { recursive: true, mode: 0o700 });
for (const file of readdirSync(args.state).filter((each) => each.endsWith('.json'))) {
  const result = JSON.parse(readFileSync(join(args.state, file), 'utf8'));
  results.set(nameOf(result.grant), result);
}

// --- the session

const offer = (paused = false) => ({ capabilities: ['llm.generate', 'llm.chat'].map((kind) => ({
  kind, backendId: 'upper', backendClass: 'process', model: 'upper',
  ...(args.dialect === '0' ? { offerScope: 'self' } : { offerScope: 'private', service: 'upper' }),
})), slots: Number(args.slots), paused });

const activeLeases = () => [...work.values(), ...results.values()].map(({ grant }) => grant);

/** As many grants as a hello of 16,384 bytes has room for. The others are given back, and their results are refused. */
function fitting(grants) {
  let room = 12000;
  return grants.filter((grant) => (room -= JSON.stringify(JSON.stringify(grant)).length) > 0);
}

const connection = new Connection({
  relay: args.relay, role: 'daemon', caller: args.runner, key, dialect: args.dialect, log, recordTo: args.record,
  members: () => ({ ...offer(), activeLeases: fitting(activeLeases()) }), onWelcome, onPush,
});

/** For requests whose loss does no harm, since the next welcome or heartbeat leads to the same place. */
function tell(frame) {
  return connection.request(frame).catch((error) => {
    if (!(error instanceof Cut)) log('refused', { request: frame.type, message: error.message });
    return {};
  });
}

function onWelcome(welcome) {
  ({ sites = {}, successions = {} } = welcome);
  forget(welcome.lost);
  cancel(welcome.cancel);
  for (const name of results.keys()) deliver(name);
  for (const [name, { grant, taken }] of work) if (!taken) fetch(name, grant);
  clearInterval(heartbeat);
  heartbeat = setInterval(async () => { // a timer of its own, whatever the work does
    if (work.size + results.size === 0) return;
    const { lost, cancel: stop } = await tell({ type: 'heartbeat', activeLeases: activeLeases() });
    forget(lost);
    cancel(stop);
  }, welcome.heartbeatMs);
}

function onPush(frame) {
  switch (frame.type) {
    case 'claimed': return claimed(frame.jobs);
    case 'payload': return run(frame, frame.envelope);
    case 'cancel': return cancel(frame.grants);
    case 'sites': return void ({ sites = {}, successions = {} } = frame);
    case 'lost':
      forget(frame.grants);
      // After a claim that wasn't accepted in time, the relay offers nothing until it hears that somebody is here.
      return frame.reason === 'unaccepted' ? tell({ type: 'ready', ...offer() }) : undefined;
    default: return undefined;
  }
}

/** The PublicIdentity of a stub's site; undefined when nothing may be run for it. */
function siteOf(keyId) {
  const trusted = !args.pin || follows(new Set(args.pin), keyId, successions[keyId]);
  return trusted && Object.hasOwn(sites, keyId) ? checkIdentity(sites[keyId]) : undefined;
}

async function claimed(jobs) {
  const accept = [], refuse = [];
  for (const { lease, ...stub } of jobs) {
    const grant = { jobId: stub.id, leaseId: lease.id };
    const site = siteOf(stub.site);
    (site ? accept : refuse).push(grant);
    // Before the accept is sent: the payload may overtake its answer.
    if (site) work.set(nameOf(grant), { grant, stub, site, taken: false, abort: new AbortController() });
  }
  if (refuse.length > 0) tell({ type: 'release', grants: refuse, reason: 'refused' });
  if (accept.length > 0) forget((await tell({ type: 'accept', grants: accept })).lost);
}

async function fetch(name, grant) {
  try {
    await run(grant, (await connection.request({ type: 'fetch', grant })).envelope);
  } catch (error) {
    // not-ready: it will be pushed. After a cut, the next welcome fetches again.
    if (['too-late', 'not-found', 'forbidden'].includes(error.code)) work.delete(name);
  }
}

async function run(ids, envelope) {
  const name = nameOf(ids);
  const job = work.get(name);
  if (!job || job.taken) return undefined; // not ours (any more), or a second copy
  const { grant, stub: { deadlineAt } } = job;
  job.taken = true;
  const started = performance.now();
  let prompt, outcome;
  try {
    const payload = JSON.parse(open(key, job.site, envelope, {
      jobId: grant.jobId, direction: 'payload', deadline: (signed) => signed > Date.now(),
    }));
    prompt = payload.prompt ?? payload.messages.at(-1).content;
  } catch (error) {
    log('bad-payload', { ...grant, message: error.message });
    return refuse(grant);
  }
  try {
    await sleep(Number(args.delay), undefined, { signal: job.abort.signal });
    outcome = { outcome: 'ok', text: prompt.replace(/[a-z]+/g, (letters) => letters.toUpperCase()) };
  } catch {
    outcome = { outcome: 'canceled' };
  }
  if (!work.has(name)) return undefined; // lost meanwhile: nothing is reported
  const ran = { model: 'upper', backendClass: 'process', durationMs: Math.round(performance.now() - started) };
  const plaintext = JSON.stringify({ outcome, ran });
  const sealed = seal(key, job.site, { jobId: grant.jobId, deadlineAt, direction: 'result', plaintext });
  keep(name, { grant, envelope: sealed, disposition: outcome.outcome });
  work.delete(name);
  return deliver(name);
}

/** Sends a result until it is answered for good, always the identical envelope. */
async function deliver(name) {
  if (delivering.has(name)) return;
  delivering.add(name);
  try {
    const { accepted } = await connection.request({ type: 'result', ...results.get(name) });
    log('reported', { ...results.get(name).grant, accepted });
  } catch (error) {
    delivering.delete(name);
    if (error instanceof Cut) return; // the next welcome sends it again
    log('result-refused', { ...results.get(name).grant, message: error.message });
    if (['server-error', 'rate-limited', 'not-ready'].includes(error.code)) {
      await sleep((error.retryAfter ?? 1) * 1000);
      return void deliver(name);
    }
    // Any other answer stays the same however often it is asked.
  }
  delivering.delete(name);
  results.delete(name);
  rmSync(fileOf(name), { force: true });
}

function cancel(grants = []) {
  for (const grant of grants) {
    const job = work.get(nameOf(grant));
    if (job?.taken) job.abort.abort(); // its result says canceled
    else if (job) refuse(grant);
  }
}

function refuse(grant) {
  work.delete(nameOf(grant));
  tell({ type: 'release', grants: [grant], reason: 'refused' });
}

/** Lost grants: stop and report nothing. A result that is on its way gets an answer of its own. */
function forget(grants = []) {
  for (const grant of grants) {
    const job = work.get(nameOf(grant));
    if (!work.delete(nameOf(grant))) continue;
    log('lost', grant);
    job.abort.abort(); // after the delete, so that run() finds nothing to report
  }
}

async function stop() {
  // Only a release gives leases back early. Paused first, else the same jobs come back at once. Results wait on disk.
  tell({ type: 'ready', ...offer(true) });
  const grants = [...work.values()].map(({ grant }) => grant);
  if (grants.length > 0) await tell({ type: 'release', grants, reason: 'shutdown' });
  connection.stop();
}
process.once('SIGINT', stop).once('SIGTERM', stop); // a second signal ends the process at once

await connection.run().catch((error) => {
  log('stop', { message: error.message });
  process.exitCode = 3;
});
process.exit();
