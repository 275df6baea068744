// The relay's clock, as its messages tell it. The browser's own clock may be wrong; only its running is used.

let offset = 0;

// set takes the relay's time of a message that just came.
export function set(now) {
  offset = now - performance.now();
}

// now answers the relay's time in epoch milliseconds.
export const now = () => offset + performance.now();
