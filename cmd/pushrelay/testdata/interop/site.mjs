// A site of the public packages on its cloud lane. Each line of standard input is a prompt; each result is a line of JSON.
// It pumps in a tight loop until its input has ended and every job has its result.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { ByollmApp, MemoryStore } from '@byollm/server';

const { values: args } = parseArgs({
  options: { relay: { type: 'string' }, site: { type: 'string' }, key: { type: 'string' }, owner: { type: 'string' } },
});

const app = new ByollmApp({
  store: new MemoryStore(),
  siteKeys: JSON.parse(readFileSync(args.key, 'utf8')),
  lane: { relayOrigin: args.relay, siteId: args.site },
});

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const open = new Map(); // the jobs without a result: their prompts, and when they were published
let reading = true;

async function publish(prompt) {
  const id = randomUUID();
  open.set(id, { prompt, began: performance.now() });
  try {
    await app.enqueue({ id, kind: 'llm.generate', payload: { prompt }, owner: args.owner });
  } catch (error) {
    open.delete(id);
    print({ event: 'failed', at: 'enqueue', message: error.message });
  }
}

createInterface({ input: process.stdin }).on('line', publish).on('close', () => { reading = false; });

print({ event: 'pumping' });
while (reading || open.size > 0) {
  try {
    const { completed, refused, deferred } = await app.cloud.pump();
    const now = performance.now();
    for (const id of completed) await report(id, now);
    if (refused.length > 0) print({ event: 'failed', at: 'pump', message: `refused: ${refused}` });
    if (deferred !== undefined) print({ event: 'deferred', message: deferred });
  } catch (error) {
    print({ event: 'failed', at: 'pump', message: error.message });
    break;
  }
}
process.exit(0);

async function report(id, now) {
  const { prompt, began } = open.get(id);
  open.delete(id);
  const { state, outcome, provenance } = await app.result(id);
  print({
    event: 'result', id, prompt, state, text: outcome?.text, runner: provenance?.runnerId, owner: provenance?.runnerOwner, ms: now - began,
  });
}
