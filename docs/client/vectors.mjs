// Checks this client against ../vectors (or the folder that is given): node vectors.mjs [FOLDER]
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodePart, encodePart, signedLines } from './client.mjs';
import { verifySignature } from './sealing.mjs';

const folder = process.argv[2] ?? join(import.meta.dirname, '../vectors');
const cases = (name) => JSON.parse(readFileSync(join(folder, name), 'utf8'));
let checked = 0;

// The relay's side of a hello, as far as the document describes it: what a client signs must satisfy exactly this.
function judgeHello({ endpoint, identityPublic, nonce, relays, hello }) {
  const lines = signedLines(endpoint, hello.caller, hello.issuedAt, hello.body);
  if (!verifySignature(identityPublic, lines, hello.signature)) return 'signature';
  const body = JSON.parse(hello.body);
  if (!['0', '2'].includes(body.protocolVersion)) return 'unsupported-protocol-version';
  if (body.nonce !== nonce) return 'nonce';
  const origin = (url) => new URL(url.replace(/^ws/, 'http')).origin; // lower case, without a default port
  if (!relays.some((relay) => origin(relay) === origin(body.relay))) return 'relay';
  if (body.role === 'daemon' && !(body.slots >= 1 && body.slots <= 64)) return 'bad-request';
  return undefined;
}

for (const c of cases('hello.json')) {
  const lines = signedLines(c.endpoint, c.hello.caller, c.hello.issuedAt, c.hello.body);
  assert.equal(Buffer.from(lines).toString('hex'), c.signedHex, c.name);
  assert.equal(judgeHello(c), c.refused, c.name);
  checked++;
}

for (const c of cases('parts.json')) {
  const message = Buffer.concat([Buffer.from(c.messageHex, 'hex'), Buffer.alloc(c.filling ?? 0, 0x61)]);
  if (c.refused) {
    assert.throws(() => decodePart(message), { closeCode: { bad: 4400, 'too-large': 1009 }[c.refused] }, c.name);
  } else {
    const { stream, flags, total, data } = decodePart(message);
    assert.deepEqual([stream, flags, total, data.length], [c.stream, c.flags ?? 0, c.total, c.dataBytes ?? 0], c.name);
    assert.deepEqual(encodePart(stream, flags, total, data), message, c.name); // and writing is the inverse of reading
  }
  checked++;
}

console.log(JSON.stringify({ event: 'vectors', checked }));
