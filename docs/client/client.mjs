// Transport of byollm.push.v1 (protocol.md, sections 2, 3, 6 and 7): the handshake, requests and pushes, frames in parts
// with credit both ways, and what to do after each end of a session. It knows nothing about jobs.
import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import WebSocket from 'ws';
import { sha256 } from './sealing.mjs';

const SUBPROTOCOL = 'byollm.push.v1';
const TEXT_LIMIT = 32768; // a longer frame goes in parts
const PART_LIMIT = 32768;
const FRAME_LIMIT = 8388608;
const FIRST_CREDIT = 65536;
const MAX_STREAMS = 8;
const LAST = 1, ABORT = 2, FIRST = 4;
const SILENCE_MS = 60000;
const ROLES = {
  daemon: { path: '/byollm/session', endpoint: 'session' },
  site: { path: '/relay/site/session', endpoint: 'site/session' },
};

/** The relay's answer `error`: `code` is its code, its other members (retryAfter, state ...) stand beside it. */
const relayError = (frame) => Object.assign(new Error(`${frame.error}: ${frame.message}`), { ...frame, code: frame.error });

/** The session ended before an answer came. Whether the request took effect isn't known: repeat it after the next welcome. */
export class Cut extends Error {}

const broken = (closeCode, message) => Object.assign(new Error(message), { closeCode });

/** The bytes that a hello's signature is over. */
export function signedLines(endpoint, caller, issuedAt, body) {
  return ['byollm/v1/request', endpoint, caller, issuedAt, sha256(body).toString('hex')].join('\n');
}

export function encodePart(stream, flags, total, data) {
  const header = Buffer.alloc(flags & FIRST ? 9 : 5);
  header.writeUInt32BE(stream, 0);
  header[4] = flags;
  if (flags & FIRST) header.writeUInt32BE(total, 5);
  return Buffer.concat([header, data]);
}

export function decodePart(message) {
  const flags = message[4];
  const first = Boolean(flags & FIRST);
  if (message.length < (first ? 9 : 5)) throw broken(4400, 'a part is shorter than its header');
  if (flags & ~(LAST | ABORT | FIRST)) throw broken(4400, 'a part has an unknown flag');
  const total = first ? message.readUInt32BE(5) : undefined;
  const data = message.subarray(first ? 9 : 5);
  if (data.length > PART_LIMIT || total > FRAME_LIMIT) throw broken(1009, 'a part or its frame is too long');
  const empty = data.length === 0;
  if (flags & ABORT ? flags !== ABORT || !empty : empty) throw broken(4400, 'an abort has data, or a part has none');
  if (data.length > total || (flags & LAST && data.length < total)) throw broken(4400, "a part doesn't fit its length");
  return { stream: message.readUInt32BE(0), flags, total, data };
}

/** One session, from dialling to its end. `closed` resolves to {code, reason, retryAfter?} and never rejects. */
class Session {
  #ws;
  #options;
  #pending = new Map(); // id -> {resolve, reject, bytes}
  #pendingBytes = 0;
  #waiting = []; // requests held back because too much is unanswered
  #outgoing = new Map(); // stream -> {bytes, sent, credit, timer}
  #queue = []; // long frames that wait for a free stream
  #lastStream = 0;
  #incoming = new Map(); // stream -> {chunks, got, granted, total}
  #heard = performance.now();
  #moveOn;
  welcomedAt; // absent before the welcome

  constructor(options) {
    this.#options = options;
    this.url = new URL(ROLES[options.role].path, options.relay.replace(/^http/, 'ws')).href;
    // By default ws offers compression and takes messages of 100 MiB; the protocol has neither.
    this.#ws = new WebSocket(this.url, SUBPROTOCOL, {
      perMessageDeflate: false, maxPayload: PART_LIMIT + 9, handshakeTimeout: 10000,
    });
    this.movedOn = new Promise((resolve) => { this.#moveOn = resolve; });
    this.closed = new Promise((resolve) => {
      const why = {}; // a refused dial has no close frame that would tell
      this.#ws.on('unexpected-response', (_, { statusCode, headers }) => {
        Object.assign(why, { reason: `HTTP ${statusCode}`, retryAfter: Number(headers['retry-after']) || undefined });
        this.#ws.terminate();
      });
      this.#ws.on('error', (error) => { why.reason ??= error.message; });
      this.#ws.on('close', (code, reason) => resolve({ code, ...why, reason: reason.toString() || why.reason || '' }));
    });
    this.#ws.on('message', (data, binary) => this.#message(data, binary));
    this.#ws.on('ping', () => { this.#heard = performance.now(); });
    const watch = this.#watch();
    this.closed.then(() => {
      clearInterval(watch);
      for (const stream of this.#outgoing.values()) clearTimeout(stream.timer);
      for (const { reject } of [...this.#pending.values(), ...this.#waiting]) reject(new Cut('no answer came'));
    });
  }

  close(code = 1000, reason = '') {
    this.#ws.close(code, reason.slice(0, 100));
  }

  /** A dead connection doesn't say so: look for silence, and for a suspend, after which the relay has given up on us. */
  #watch() {
    let wall = Date.now(), monotonic = performance.now();
    return setInterval(() => {
      const suspended = Date.now() - wall - (performance.now() - monotonic) > 10000;
      wall = Date.now();
      monotonic = performance.now();
      if (suspended || monotonic - this.#heard > SILENCE_MS) this.#ws.terminate();
    }, 5000);
  }

  #message(data, binary) {
    this.#heard = performance.now();
    try {
      if (binary) return this.#part(decodePart(data));
      if (data.length > TEXT_LIMIT) throw broken(1009, 'a text message is too long');
      return this.#frame(JSON.parse(data.toString()));
    } catch (error) {
      this.#options.log('bad-message', { message: error.message });
      return this.close(error.closeCode ?? 4400, error.message);
    }
  }

  #frame(frame) {
    this.#options.record('<', frame);
    switch (frame.type) {
      case 'challenge': return this.#hello(frame);
      case 'welcome':
        this.welcomedAt = performance.now();
        // Not later: a push may be in the next message already.
        return this.#options.onWelcome(frame, this);
      case 'reply': return this.#settle(frame.re)?.resolve(frame);
      case 'error':
        if (frame.re !== undefined) return this.#settle(frame.re)?.reject(relayError(frame));
        if (frame.stream !== undefined) return this.#refused(frame);
        return this.#options.log('error', { code: frame.error, message: frame.message });
      case 'credit': {
        const stream = this.#outgoing.get(frame.stream); // absent when it ended meanwhile
        if (stream) stream.credit += frame.bytes;
        return stream && this.#pump(frame.stream, stream);
      }
      case 'goaway': return void setTimeout(this.#moveOn, frame.reconnectAfterMs).unref();
      default: return this.#options.onPush(frame);
    }
  }

  #hello({ nonce, versions }) {
    const { role, caller, key, dialect, members } = this.#options;
    if (!versions.includes(dialect)) return this.close(4426, `the relay speaks ${versions}, not ${dialect}`);
    const client = { name: 'pushrelay-example-client', version: '1.0.0', platform: process.platform };
    const body = JSON.stringify({ protocolVersion: dialect, nonce, relay: this.url, role, client, ...members() });
    const issuedAt = Date.now();
    const signature = key.sign(signedLines(ROLES[role].endpoint, caller, issuedAt, body));
    return this.send({ type: 'hello', caller, issuedAt, signature, body });
  }

  #settle(id) {
    const request = this.#pending.get(id);
    if (!this.#pending.delete(id)) return undefined;
    this.#pendingBytes -= request.bytes;
    while (this.#waiting.length > 0 && this.#room()) this.#waiting.shift().start();
    return request;
  }

  // More than 64 requests or 16 MiB unanswered end the session. What is left above this is for one long frame and heartbeats.
  #room() {
    return this.#pending.size < 60 && this.#pendingBytes < FRAME_LIMIT - 65536;
  }

  /** Sends a frame that wants an answer. Rejects with a relay's error, or with a Cut when the session ends first. */
  request(frame) {
    return new Promise((resolve, reject) => {
      if (this.#ws.readyState !== WebSocket.OPEN) return reject(new Cut('no session'));
      const start = () => {
        const id = randomUUID();
        try {
          const bytes = this.send({ ...frame, id });
          this.#pending.set(id, { resolve, reject, bytes });
          this.#pendingBytes += bytes;
        } catch (error) {
          reject(error);
        }
      };
      // Heartbeats overtake all others: the leases depend on them.
      if (frame.type === 'heartbeat' || (this.#waiting.length === 0 && this.#room())) return start();
      return this.#waiting.push({ start, reject });
    });
  }

  /** Sends a frame as text or in parts; answers its length in bytes. */
  send(frame) {
    const bytes = Buffer.from(JSON.stringify(frame));
    if (bytes.length > FRAME_LIMIT) throw new Error(`a ${frame.type} of ${bytes.length} bytes is too long: send less`);
    this.#options.record('>', frame);
    if (bytes.length <= TEXT_LIMIT) this.#ws.send(bytes, { binary: false });
    else this.#enqueue(bytes);
    return bytes.length;
  }

  #enqueue(...frames) {
    this.#queue.push(...frames);
    while (this.#queue.length > 0 && this.#outgoing.size < MAX_STREAMS) {
      const stream = { bytes: this.#queue.shift(), sent: 0, credit: FIRST_CREDIT };
      this.#outgoing.set(++this.#lastStream, stream);
      this.#pump(this.#lastStream, stream);
    }
  }

  /** Sends what the credit allows. Small frames pass between, since never more than the credit is on its way before them. */
  #pump(id, stream) {
    clearTimeout(stream.timer);
    const total = stream.bytes.length;
    while (stream.credit > 0 && stream.sent < total) {
      const data = stream.bytes.subarray(stream.sent, stream.sent + Math.min(PART_LIMIT, stream.credit));
      const flags = (stream.sent === 0 ? FIRST : 0) | (stream.sent + data.length === total ? LAST : 0);
      this.#ws.send(encodePart(id, flags, total, data));
      this.#options.record('>', { part: { stream: id, flags, bytes: data.length } });
      stream.sent += data.length;
      stream.credit -= data.length;
    }
    if (stream.sent < total) {
      stream.timer = setTimeout(() => this.close(4429, 'no credit for 30 s'), 30000);
    } else if (this.#outgoing.delete(id)) {
      this.#enqueue(); // another one may begin
    }
  }

  /** The relay can't take a stream now: abort it and send the same frame again later. */
  #refused({ stream: id, retryAfter = 1 }) {
    const stream = this.#outgoing.get(id);
    if (!stream) return;
    clearTimeout(stream.timer);
    this.#ws.send(encodePart(id, ABORT, 0, Buffer.alloc(0)));
    const timer = setTimeout(() => this.#enqueue(stream.bytes), retryAfter * 1000);
    this.closed.then(() => clearTimeout(timer));
    this.#outgoing.delete(id);
    this.#enqueue();
  }

  #part({ stream: id, flags, total, data }) {
    this.#options.record('<', { part: { stream: id, flags, bytes: data.length } });
    let stream = this.#incoming.get(id);
    if (flags & ABORT) return void this.#incoming.delete(id);
    if (Boolean(stream) === Boolean(flags & FIRST)) throw broken(4400, 'a stream begins twice, or never began');
    if (!stream) {
      if (this.#incoming.size >= MAX_STREAMS) throw broken(4400, 'more than 8 streams are open');
      stream = { chunks: [], got: 0, granted: FIRST_CREDIT, total };
      this.#incoming.set(id, stream);
    }
    stream.chunks.push(data);
    stream.got += data.length;
    if (stream.got > stream.granted) throw broken(4400, 'more came than the credit');
    if (stream.got > stream.total || Boolean(flags & LAST) !== (stream.got === stream.total)) {
      throw broken(4400, "the parts don't add up to the length");
    }
    if (flags & LAST) {
      this.#incoming.delete(id);
      return this.#frame(JSON.parse(Buffer.concat(stream.chunks).toString()));
    }
    // 64 KiB on their way for each stream: with 8 of them that is all that may be outstanding.
    const bytes = Math.min(stream.got + FIRST_CREDIT, stream.total) - stream.granted;
    if (bytes <= 0) return undefined;
    stream.granted += bytes;
    return this.send({ type: 'credit', stream: id, bytes });
  }
}

/** What to do after the end of a session: the table of section 6. */
export class Ends {
  #ceiling = 1000;
  #strikes = 0;
  #superseded = []; // when

  /** Answers {wait: ms} or {stop: why}. `authenticatedMs` is how long the session lasted after its welcome. */
  judge({ code, reason, retryAfter }, authenticatedMs = 0) {
    const between = (from, to) => from + Math.random() * (to - from);
    if (authenticatedMs >= 60000) this.#ceiling = 1000;
    this.#strikes = [1008, 1009, 4400].includes(code) ? this.#strikes + 1 : 0;
    if (this.#strikes >= 3) return { stop: `the relay can't read this client: ${code} ${reason}` };
    if (code === 1001 || code === 4408) return { wait: between(0, 1000) };
    if (code === 4401 && reason.startsWith('unknown')) return { wait: between(60000, 300000) };
    if ([4401, 4403, 4426].includes(code)) return { stop: `the relay refuses this client: ${code} ${reason}` };
    if (code === 4409) {
      this.#superseded = [...this.#superseded, Date.now()].filter((at) => Date.now() - at < 600000);
      if (this.#superseded.length >= 3) return { stop: 'superseded three times in 10 minutes: do two machines use this key?' };
      return { wait: between(30000, 60000) };
    }
    if (retryAfter !== undefined) return { wait: retryAfter * 1000 + between(0, 1000) };
    const wait = between(500, this.#ceiling);
    this.#ceiling = Math.min(this.#ceiling * 2, 30000);
    return { wait };
  }
}

/**
 * A session that is dialled again until stop(), or until an end that forbids it, for which run() rejects.
 * Options: relay, role, caller, key, dialect; members() for the hello's body; onWelcome(welcome), onPush(frame);
 * log(event, fields); recordTo, a file that gets a line of JSON for each frame.
 */
export class Connection {
  #options;
  #session; // the one to use
  #dialled; // the newest
  #stop = new AbortController();

  constructor(options) {
    const { recordTo, role, onWelcome, log } = options;
    const record = (dir, frame) => {
      if (recordTo) appendFileSync(recordTo, `${JSON.stringify({ at: Date.now(), role, dir, frame })}\n`);
    };
    this.#options = { ...options, record, onWelcome: (welcome, session) => {
      // One that was told goaway works until its successor is there; its own end (4409) means nothing then.
      this.#session?.close();
      this.#session = session;
      log('connected', { session: welcome.sessionId });
      onWelcome(welcome);
    } };
  }

  async run() {
    const ends = new Ends();
    while (!this.#stop.signal.aborted) {
      const session = this.#dialled = new Session(this.#options);
      const end = await Promise.race([session.closed, session.movedOn]);
      if (!end) continue; // goaway, and its time is over
      if (this.#stop.signal.aborted) return;
      const next = ends.judge(end, performance.now() - (session.welcomedAt ?? performance.now()));
      this.#options.log('disconnected', { ...end, ...next });
      if (next.stop) throw new Error(next.stop);
      await sleep(next.wait, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
  }

  /** Resolves to the reply; rejects with the relay's error or a Cut. */
  request(frame) {
    return this.#session ? this.#session.request(frame) : Promise.reject(new Cut('no session yet'));
  }

  stop() {
    this.#stop.abort();
    this.#session?.close();
    this.#dialled?.close();
  }
}
