// Writes what daemon.mjs and site.mjs recorded with --record as a page: node transcript.mjs FILE... > transcript.md
import { readFileSync } from 'node:fs';

const lines = process.argv.slice(2).flatMap((file) => readFileSync(file, 'utf8').trim().split('\n').map((line) => JSON.parse(line)));
lines.sort((a, b) => a.at - b.at); // stable: each file is in order already
const short = (name, value) => (name === 'ciphertext' ? `${value.slice(0, 24)}…` : value);

console.log(`# Transcript of one job

Recorded from the daemon and the site in [client/](client/) at one relay: \`--record FILE\` writes their frames,
\`transcript.mjs\` makes this page of them. The relay ran with \`--lease 6s\` and the daemon with \`--delay 3000\`, so that there
are heartbeats. At the end the daemon is stopped. What the members mean stands in [protocol.md](protocol.md).

On the left: milliseconds since the first frame; whose session; \`>\` to the relay, \`<\` from it. **Ciphertexts are shortened to
24 characters and an ellipsis.** Everything else is as it went over the wire; the keys were made for the recording.
`);
for (const { at, role, dir, frame } of lines) {
  console.log(`    ${String(at - lines[0].at).padStart(6)} ${role.padEnd(6)} ${dir} ${JSON.stringify(frame, short)}`);
}
