// A site that publishes jobs for an owner and prints each result as a line of JSON.
//   node site.mjs --relay http://127.0.0.1:8080 --key site.key --site site-one --owner owner-a --jobs 3 --bytes 1048576
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Connection, Cut } from './client.mjs';
import { Key, checkIdentity, open, seal } from './sealing.mjs';

const { values: args } = parseArgs({
  options: {
    relay: { type: 'string' }, key: { type: 'string' }, site: { type: 'string' }, owner: { type: 'string' },
    jobs: { type: 'string', default: '1' },
    bytes: { type: 'string', default: '0' }, // each prompt is filled up to this length in UTF-8
    minutes: { type: 'string', default: '10' }, // until the deadline
    dialect: { type: 'string', default: '2' },
    record: { type: 'string' }, // file for all frames
  },
});
for (const name of ['relay', 'key', 'site', 'owner']) {
  if (!args[name]) throw new Error(`--${name} is missing: see the example at the top of this file`);
}
const log = (event, fields = {}) => console.error(JSON.stringify({ event, ...fields }));
const key = Key.load(args.key);
const LONG = 256 * 1024;

/** The nth prompt: characters that writers of JSON escape differently, then filling of 3 bytes for 2 UTF-16 units. */
function promptOf(n) {
  const text = `job ${n}: <b> & "quotes" \\ \u2028 \u{1f600} `;
  const missing = Math.max(0, Number(args.bytes) - Buffer.byteLength(text));
  return text + 'x'.repeat(missing % 3) + 'a\u00e9'.repeat(missing / 3);
}

// Jobs without a result. `sealedTo` has the identity of each device that got the payload, by lease: no other device can
// have made the result.
const waiting = new Map();
for (let n = 1; n <= Number(args.jobs); n++) {
  const stub = {
    id: randomUUID(), kind: 'llm.generate', owner: args.owner, site: key.keyId,
    audience: args.dialect === '0' ? 'self' : 'private', sizeClass: 'small', streaming: false,
    deadlineAt: Date.now() + Number(args.minutes) * 60000,
  };
  waiting.set(stub.id, { n, stub, published: Date.now(), sealedTo: new Map() });
}

const connection = new Connection({
  relay: args.relay, role: 'site', caller: args.site, key, dialect: args.dialect, log, recordTo: args.record,
  members: () => ({}), onWelcome: () => enqueue([...waiting.values()]), onPush,
});

/** Publishes jobs, or publishes them again: by their ids the relay knows those that it has. */
async function enqueue(jobs) {
  for (let i = 0; i < jobs.length; i += 256) {
    const some = jobs.slice(i, i + 256);
    try {
      const answer = await connection.request({ type: 'enqueue', stubs: some.map(({ stub }) => stub) });
      for (const [j, { error, message, retryAfter }] of answer.jobs.entries()) {
        if (error === 'rate-limited' || error === 'server-error') again([some[j]], retryAfter);
        else if (error) end(some[j].stub.id, { ok: false, code: error, message });
      }
    } catch (error) {
      if (error instanceof Cut) return; // the next welcome publishes what is left
      log('enqueue-refused', { message: error.message });
      again(some, error.retryAfter);
    }
  }
}

async function again(jobs, seconds = 1) {
  await sleep(seconds * 1000);
  enqueue(jobs.filter(({ stub }) => waiting.has(stub.id)));
}

function onPush(frame) {
  switch (frame.type) {
    case 'seal-request': return frame.jobs.forEach(sealFor);
    case 'results': return collect(frame.jobs, result);
    case 'notices': return collect(frame.jobs, ({ jobId, why }) => end(jobId, { ok: false, code: why }));
    default: return undefined;
  }
}

async function sealFor({ jobId, leaseId, device }) {
  const job = waiting.get(jobId);
  // Another process of this site may have published it: the relay asks that one when this one is silent. And it asks
  // again while a long envelope is still on its way.
  if (!job || job.sealedTo.has(leaseId)) return;
  const grant = { jobId, leaseId };
  try {
    job.sealedTo.set(leaseId, checkIdentity(device).identity);
    const { deadlineAt } = job.stub;
    const plaintext = JSON.stringify({ prompt: promptOf(job.n) });
    const envelope = seal(key, device, { jobId, deadlineAt, direction: 'payload', plaintext });
    if (envelope.ciphertext.length > LONG) await connection.request({ type: 'sealing', grants: [grant] });
    await connection.request({ type: 'seal', ...grant, envelope });
  } catch (error) {
    log('seal-failed', { ...grant, message: error.message });
    // After a cut, or whatever the relay answered, it asks again. What can't be sealed is declined.
    if (error instanceof Cut || error.code) job.sealedTo.delete(leaseId);
    else connection.request({ type: 'decline', grants: [grant] }).catch(() => {});
  }
}

/** Answers all of them with `collected`, also those of unknown jobs: else they come for ever. */
async function collect(jobs, take) {
  jobs.forEach(take);
  const grants = jobs.map(({ jobId, leaseId }) => ({ jobId, leaseId }));
  await connection.request({ type: 'collected', grants }).catch((error) => log('collect-failed', { message: error.message }));
  if (waiting.size === 0) connection.stop();
}

function result({ jobId, leaseId, envelope, disposition, runnerId, device }) {
  const job = waiting.get(jobId);
  if (!job) return; // a second copy, or another process's
  try {
    const { identity } = checkIdentity(device);
    if (job.sealedTo.get(leaseId) !== identity) throw new Error('the result comes from a device that got no payload');
    // A device that polls signs the time of its answer and a day; an older answer to an earlier job of this id has an earlier one.
    const deadline = (signed) => signed === job.stub.deadlineAt || signed >= job.published + 86400000 - 600000;
    const { outcome, ran } = JSON.parse(open(key, device, envelope, { jobId, direction: 'result', deadline }));
    if (outcome.outcome !== disposition) throw new Error('the disposition outside differs from the outcome inside');
    end(jobId, { ok: disposition === 'ok', ...outcome, model: ran.model, runner: runnerId });
  } catch (error) {
    end(jobId, { ok: false, code: 'bad-result', message: error.message });
  }
}

function end(id, fields) {
  const job = waiting.get(id);
  if (waiting.delete(id)) console.log(JSON.stringify({ id, job: job.n, ...fields }));
}

await connection.run().catch((error) => {
  log('stop', { message: error.message });
  process.exitCode = 3;
});
