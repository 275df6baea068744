// What the relay's words mean, and what to do about them.

// why a queued job isn't claimed: [text, what to do]. Of devices there may be several reasons at once, each for some of
// them; those have a third text, for lists of them.
const obstacles = {
  cancelled: ['its site cancelled it', 'Nothing to do: it is dropped as soon as it is back in the queue.'],
  draining: ['this relay is going away and hands out nothing new', 'Start its successor; sites and devices move there by themselves.'],
  'unknown-site': ['no route: the projection has no such site', 'Add the site to the projection, or let the job end at its deadline.'],
  'no-consent': ['no route: its owner has no consent for this site', 'The owner consents at the control plane, which then updates the projection.'],
  revoked: ['no route: its owner revoked this site', 'Only the owner can consent again, at the control plane.'],
  'paused-consent': ['its owner paused this site', 'The owner ends the pause at the control plane.'],
  'no-site-session': ['no session of the site is open', 'Start the site: nobody else can seal the payload.'],
  'site-silent': ['the site answers no seal requests', 'Look at the site’s log: its session is open, but it doesn’t seal.'],
  'site-bytes': ['the site has too much sealed data here', 'The site must collect its results; --bytes-per-site is the bound.'],
  'no-device': ['no device may run it', 'Its owner pairs a device, or one that was revoked is approved again.'],
  'nobody-connected': ['nobody who may run it is connected', 'Start the daemon on a device of its owner, and look at its log.', 'away'],
  'other-version': ['devices speak another version of the protocol', 'Update the daemon, or publish the job in its version.', 'of another version'],
  'nobody-with-kind': ['nobody connected runs this kind', 'Give a daemon a back end for this kind.', 'without this kind'],
  'all-paused': ['devices are paused', 'Unpause the daemon on the device.', 'paused'],
  unanswered: ['devices left an offer unanswered', 'Look at the daemon’s log; it gets more when it says that it is ready.', 'not answering'],
  'refused-by-all': ['devices refused it or gave it back', 'Look at the daemons’ logs for why. Who gave it back is asked again after a while, who refused it for good never is.', 'refused it'],
  'refuses-the-queue': ['devices refused too many jobs like it', 'Look at why the daemon refuses this kind; it is asked again later.', 'resting after refusals'],
  'no-grants': ['the control plane can’t be asked for grants', 'Look at what --grant-url names; it is asked again by itself.'],
  'grants-declined': ['the control plane declined too many jobs like it', 'Look at why it declines; it is asked again after a while.', 'declined'],
  'all-busy': ['all are busy', 'It is taken when a slot is free. More slots or another device would be faster.', 'busy'],
  unsealed: ['too many of this owner’s jobs wait for their seal', 'The site seals too slowly: look at its log and its load.'],
  next: ['its turn comes', 'Nothing is in the way.'],
};

const known = (o) => (Object.hasOwn(obstacles, o.code) ? obstacles[o.code] : [o.code, '']);

// obstacle answers what a reason says and what to do about it.
export function obstacle(o) {
  const [text, todo, some] = known(o);
  if (some) return { text: `${text}: ${o.n} of ${o.of} ${o.of === 1 ? 'device' : 'devices'} ${some}`, todo };
  return { text: o.of ? `${text}: ${o.n} of at most ${o.of}` : text, todo };
}

// held answers in one line what holds a job up, the most general reason first.
export function held(why) {
  const [text, , some] = known(why[0]);
  if (!some) return text;
  const devices = why.filter((o) => known(o)[2]);
  if (devices.length === 1) return text;
  return 'devices: ' + devices.map((o) => `${o.n} ${known(o)[2]}`).join(', ');
}

export const obstacleCodes = Object.keys(obstacles);

// what a state means while a job is in it.
export const states = {
  queued: 'waits for a device', offered: 'a device was asked to take it', awaiting: 'the site was asked to seal its payload',
  ready: 'sealed; on its way to the device', running: 'the device works on it', done: 'its result waits for the site',
  collected: 'the site has its result', dropped: 'it ended without a result',
};

// steps of a timeline.
export const steps = {
  queued: 'queued', offered: 'offered', accepted: 'accepted', ready: 'sealed', running: 'running', done: 'done',
  ended: 'grant ended', dropped: 'dropped', cancel: 'cancel asked', collected: 'collected',
};

const words = {
  released: 'given back by the device', refused: 'refused by the device, for good', unaccepted: 'the device did not answer in time',
  cut: 'the session ended before the device accepted', window: 'the site did not seal in time', declined: 'the site would not seal',
  lapsed: 'the device fell silent', abandoned: 'the device came back without it', withdrawn: 'consent or device were revoked',
  deadline: 'its deadline passed', unsealed: 'not sealed in time, three times', cancelled: 'its site cancelled it',
  ok: 'ok', error: 'error', canceled: 'canceled',
};

// word explains a reason or a disposition; an unknown one is shown as it is.
export const word = (w) => (Object.hasOwn(words, w) ? words[w] : w);
