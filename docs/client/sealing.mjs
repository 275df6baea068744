// What only the two ends can do: identities, key ids, signatures and sealed envelopes (protocol.md, sections 8 and 9),
// and the key file that `pushrelay keygen` and `pushrelay init` write.
import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import sodium from 'libsodium-wrappers';

await sodium.ready;

const ENVELOPE_VERSION = 'byollm/v1/envelope';
const MAX_ENVELOPE = 6 * 1024 * 1024;
const CROCKFORD = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest();
export const encode = (bytes) => Buffer.from(bytes).toString('base64url');

/** Decodes strictly: Buffer alone skips what isn't base64url, so that two texts could stand for the same bytes. */
export function decode(text, length) {
  const bytes = Buffer.from(String(text), 'base64url');
  if (encode(bytes) !== text) throw new Error('not base64url without padding');
  if (length !== undefined && bytes.length !== length) throw new Error(`${bytes.length} bytes instead of ${length}`);
  return bytes;
}

/** The key id of a raw Ed25519 key, given as its base64url text. */
export function keyId(identity) {
  const digest = sha256(decode(identity, 32)).subarray(0, 15); // 120 bits are 24 digits of 5 bits
  let bits = BigInt(`0x${digest.toString('hex')}`);
  let digits = '';
  for (let i = 0; i < 24; i++, bits >>= 5n) digits = CROCKFORD[Number(bits & 31n)] + digits;
  return `BYOLLM-${digits.match(/.{4}/g).join('-')}`;
}

export function verifySignature(identity, bytes, signature) {
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: encode(decode(identity, 32)) }, format: 'jwk' });
  return verify(null, Buffer.from(bytes), key, decode(signature, 64));
}

/** Throws unless the encryption key of a PublicIdentity is signed by its identity key. To be called on every receipt. */
export function checkIdentity(id) {
  // The text of the key is signed, not its bytes.
  if (!verifySignature(id.identity, `byollm/v1/encryption-key:${id.encryption}`, id.encryptionSig)) {
    throw new Error(`the encryption key of ${keyId(id.identity)} isn't signed by it: don't use it`);
  }
  return id;
}

/** True when `to` is pinned, or a chain of successions leads to it from a pinned site key: each link is signed by the older key. */
export function follows(pinned, to, links = []) {
  const ids = [...links.map(({ identity }) => keyId(checkIdentity(identity).identity)), to];
  let trusted = false;
  for (const [i, { identity, signature }] of links.entries()) {
    const lines = `byollm/v1/site-succession:${ids[i]}:${ids[i + 1]}`;
    // A bad link ends what was trusted before it; a key that is pinned later may still lead on.
    trusted = (trusted || pinned.has(ids[i])) && verifySignature(identity.identity, lines, signature);
  }
  return trusted || pinned.has(to);
}

/** A private identity: `public` is the PublicIdentity, `keyId` its key id. */
export class Key {
  #identity;
  #encryption;

  constructor(stored) {
    if (stored.version !== 1) throw new Error(`key file version ${stored.version}: make one with pushrelay keygen`);
    const pkcs8 = (text) => createPrivateKey({ key: Buffer.from(text, 'base64'), format: 'der', type: 'pkcs8' });
    this.#identity = pkcs8(stored.identityPrivate);
    const { d, x } = pkcs8(stored.encryptionPrivate).export({ format: 'jwk' });
    this.#encryption = decode(d, 32);
    this.public = checkIdentity({
      identity: stored.identityPublic, encryption: stored.encryptionPublic, encryptionSig: stored.encryptionSig,
    });
    this.keyId = keyId(stored.identityPublic);
    if (x !== stored.encryptionPublic || this.#identity.export({ format: 'jwk' }).x !== stored.identityPublic) {
      throw new Error('the private and public keys of the key file differ: make one with pushrelay keygen');
    }
  }

  static load(file) {
    if (process.platform !== 'win32' && statSync(file).mode & 0o077) {
      throw new Error(`others may read the key ${file}: run chmod 600 on it`);
    }
    return new Key(JSON.parse(readFileSync(file, 'utf8')));
  }

  sign(bytes) {
    return encode(sign(null, Buffer.from(bytes), this.#identity));
  }

  /** Opens crypto_box_seal; throws when it wasn't sealed to this key. */
  unseal(ciphertext) {
    return Buffer.from(sodium.crypto_box_seal_open(ciphertext, decode(this.public.encryption, 32), this.#encryption));
  }
}

/** Seals a plaintext to a PublicIdentity. The caller has verified it with checkIdentity. */
export function seal(sender, recipient, { jobId, deadlineAt, direction, plaintext }) {
  const recipientKeyId = keyId(recipient.identity);
  // The signature is over exactly these bytes, and the other end gets them, so that nothing needs to be canonical again.
  const body = JSON.stringify({
    v: ENVELOPE_VERSION, jobId, senderKeyId: sender.keyId, recipientKeyId, deadlineAt, direction, plaintext,
  });
  const inner = JSON.stringify({ body: encode(body), signature: sender.sign(body) });
  const ciphertext = encode(sodium.crypto_box_seal(Buffer.from(inner), decode(recipient.encryption, 32)));
  const envelope = { ciphertext, recipientKeyId, senderKeyId: sender.keyId, direction, deadlineAt };
  if (Buffer.byteLength(JSON.stringify(envelope)) > MAX_ENVELOPE) {
    throw new Error('the sealed envelope is over 6 MiB: send less text');
  }
  return envelope;
}

/**
 * Opens an envelope and checks all that it says against what is expected; answers the plaintext. The deadline outside must be
 * the one that was signed; which ones are good is the caller's to say.
 */
export function open(recipient, sender, envelope, { jobId, direction, deadline = () => true }) {
  const inner = JSON.parse(recipient.unseal(decode(envelope.ciphertext)).toString());
  const body = decode(inner.body);
  if (!verifySignature(sender.identity, body, inner.signature)) throw new Error('the envelope is not signed by its sender');
  const said = JSON.parse(body.toString());
  const expected = {
    v: ENVELOPE_VERSION, jobId, senderKeyId: keyId(sender.identity), recipientKeyId: recipient.keyId, direction,
    deadlineAt: envelope.deadlineAt,
  };
  for (const [member, value] of Object.entries(expected)) {
    if (said[member] !== value) throw new Error(`${member} inside the envelope is not the expected one`);
  }
  if (!deadline(said.deadlineAt)) throw new Error('deadlineAt inside the envelope is not one that fits');
  return said.plaintext;
}
