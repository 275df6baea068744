// The stream of one site, or of the list of sites. It dials again by itself, and says when what is shown is old.
import * as clock from './clock.js';
import { staleAfter, wait } from './retry.js';

const loginOver = 4401;

// open starts a stream. on has functions: update(message), live(), stale(since) and login(). Answers what the page does
// with it: look(what) replaces what is looked at, close() ends it.
export function open(site, on) {
  let socket = null, timer = null, silence = null, attempt = 0, last = 0, closed = false, wanted = null, stale = null;

  const url = new URL('stream', document.baseURI);
  url.protocol = url.protocol.replace('http', 'ws');
  if (site !== null) url.searchParams.set('site', site);

  function dial() {
    clearTimeout(timer);
    if (closed || socket) return;
    const s = socket = new WebSocket(url);
    let opened = false;
    s.onopen = () => {
      opened = true;
      tell();
      listen();
    };
    s.onmessage = (event) => {
      if (s !== socket) return;
      const message = JSON.parse(event.data);
      clock.set(message.now);
      last = message.now;
      listen();
      if (stale !== null) {
        stale = null;
        on.live();
      }
      if (message.type === 'update') {
        attempt = 0;
        on.update(message);
      }
    };
    s.onclose = (event) => {
      if (s !== socket) return;
      socket = null;
      if (event.code === loginOver) return end(on.login);
      old();
      if (!opened) ask();
      again();
    };
  }

  // listen waits for the next message; a connection that says nothing is as good as none, and is cut.
  function listen() {
    clearTimeout(silence);
    silence = setTimeout(() => {
      old();
      drop();
      again();
    }, staleAfter);
  }

  function old() {
    clearTimeout(silence);
    if (closed || stale !== null) return;
    stale = last;
    on.stale(last);
  }

  function drop() {
    const s = socket;
    socket = null;
    if (s) s.close();
  }

  function again() {
    clearTimeout(timer);
    if (!closed) timer = setTimeout(dial, wait(attempt++));
  }

  // ask finds out whether the login is why a stream can't be opened: a socket doesn't say.
  async function ask() {
    try {
      const answer = await fetch('session', { cache: 'no-store' });
      if (answer.status === 401 && !closed) end(on.login);
    } catch {
      // the relay can't be reached: the next attempt will tell
    }
  }

  function tell() {
    if (socket?.readyState === WebSocket.OPEN && wanted) socket.send(JSON.stringify(wanted));
  }

  function end(then) {
    closed = true;
    clearTimeout(timer);
    clearTimeout(silence);
    window.removeEventListener('online', now);
    drop();
    then?.();
  }

  // now dials at once, when there is reason to believe that it helps.
  function now() {
    if (!socket && !closed && document.visibilityState === 'visible') dial();
  }
  window.addEventListener('online', now);

  dial();
  return {
    look(what) {
      wanted = what;
      tell();
    },
    wake: now,
    close: () => end(),
  };
}
