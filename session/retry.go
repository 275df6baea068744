package session

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// TerminalError ends Run: dialling again would not help. Its text says what to do.
type TerminalError struct {
	End    End    // of the last session; zero when the upgrade was refused
	Status int    // of the refused upgrade, else 0
	Do     string // what a person should do
}

// Error says what happened and what to do.
func (e *TerminalError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("session: the relay answered %d: %s", e.Status, e.Do)
	}
	return fmt.Sprintf("session: the relay ended the session (%d %s): %s", e.End.Code, e.End.Text, e.Do)
}

// receivedEnd says what a close frame from the relay means, and what a client does about it: the table of section 5,
// Ends. Codes that aren't listed keep ReasonPeer.
func receivedEnd(code websocket.StatusCode, text string) (Reason, Retry) {
	switch code {
	case websocket.StatusGoingAway:
		return ReasonGoingAway, RetryNow
	case 4408:
		if strings.HasPrefix(text, string(ReasonHandshakeTimeout)) {
			return ReasonHandshakeTimeout, RetryNow
		}
		return ReasonIdle, RetryNow
	case websocket.StatusInternalError:
		return ReasonInternal, RetryBackoff
	case websocket.StatusTryAgainLater:
		return ReasonBusy, RetryBackoff
	case 4429:
		return ReasonTooSlow, RetryBackoff
	case 4401:
		if strings.HasPrefix(text, string(ReasonUnknown)) {
			return ReasonUnknown, RetryLater
		}
		return ReasonSignature, RetryStop
	case websocket.StatusPolicyViolation:
		return ReasonFlooding, RetryThrice
	case websocket.StatusMessageTooBig:
		return ReasonTooLarge, RetryThrice
	case 4400:
		return ReasonBadFrame, RetryThrice
	case 4409:
		return ReasonSuperseded, RetrySuperseded
	case 4403:
		return ReasonRevoked, RetryStop
	case 4426:
		return ReasonVersion, RetryStop
	}
	return ReasonPeer, RetryBackoff
}

// Times of coming back (design, section 5).
const (
	leastBackoff    = 500 * time.Millisecond
	firstCeiling    = time.Second
	mostBackoff     = 30 * time.Second
	provenAfter     = 60 * time.Second // authenticated for so long, the backoff begins anew
	rowEnds         = time.Hour        // a session of so long ends a row: what comes weeks apart isn't one
	nowWithin       = 2 * time.Second  // what "at once, jittered" means
	laterLeast      = time.Minute
	laterMost       = 5 * time.Minute
	supersededLeast = 30 * time.Second
	supersededMost  = 60 * time.Second
	supersededSpan  = 10 * time.Minute
	inARow          = 3
)

// schedule decides when to dial again, or that there's no point.
type schedule struct {
	random func() float64 // in [0, 1)

	failures   int         // since a session lasted
	thrice     int         // ends in a row that mean: we do something wrong
	superseded []time.Time // of late
}

func (s *schedule) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random()*float64(most-least))
}

// backoff is full jitter from 0.5 s to a ceiling that doubles up to 30 s.
func (s *schedule) backoff() time.Duration {
	ceiling := mostBackoff
	if s.failures < 5 { // 1, 2, 4, 8, 16 s
		ceiling = firstCeiling << s.failures
	}
	s.failures++
	return s.between(leastBackoff, ceiling)
}

// lasted notes how long a session was authenticated.
func (s *schedule) lasted(d time.Duration) {
	if d >= provenAfter {
		s.failures = 0
	}
	if d >= rowEnds {
		s.thrice = 0
	}
}

// ended answers how long to wait after the end of a session, or what a person should do instead.
func (s *schedule) ended(now time.Time, e End, retry Retry) (wait time.Duration, do string) {
	if retry != RetryThrice {
		s.thrice = 0
	}
	switch retry {
	case RetryNow:
		if s.failures == 0 {
			s.failures++
			return s.between(0, nowWithin), ""
		}
	case RetryLater:
		return s.between(laterLeast, laterMost), ""
	case RetryThrice:
		if s.thrice++; s.thrice >= inARow {
			return 0, "the relay refused what this client sends three times in a row; update the client, and report it: " + e.Text
		}
	case RetrySuperseded:
		return s.wasSuperseded(now)
	case RetryStop:
		return 0, doAbout(e.Reason)
	}
	return s.backoff(), ""
}

func (s *schedule) wasSuperseded(now time.Time) (time.Duration, string) {
	kept := s.superseded[:0]
	for _, t := range s.superseded {
		if now.Sub(t) < supersededSpan {
			kept = append(kept, t)
		}
	}
	if s.superseded = append(kept, now); len(s.superseded) >= inARow {
		return 0, "another program uses this runner's key and takes the session over again and again; stop one of the two, " +
			"or pair one of the machines anew"
	}
	return s.between(supersededLeast, supersededMost), ""
}

func doAbout(r Reason) string {
	switch r {
	case ReasonSignature:
		return "the signature was refused; check that the key is the approved one and that the relay's URL is spelled as the relay's operator names it"
	case ReasonRevoked:
		return "access was revoked; pair this device again, or ask the owner"
	case ReasonVersion:
		return "the relay and this client have no version in common; update the client"
	}
	return "stop"
}

// refused answers how long to wait after an upgrade that was answered with an HTTP status; retryAfter is the header's.
// What looks like a wrong address or a wrong proxy is tried three times: a deployment may be under way.
func (s *schedule) refused(status int, retryAfter time.Duration) (wait time.Duration, do string) {
	do = doAboutStatus(status)
	if do == "" {
		s.thrice = 0
		wait = s.backoff()
		if retryAfter > 0 {
			wait = max(wait, retryAfter+s.between(0, retryAfter/2+time.Second))
		}
		return wait, ""
	}
	if s.thrice++; s.thrice >= inARow {
		return 0, do
	}
	return s.backoff(), ""
}

func doAboutStatus(status int) string {
	switch status {
	case http.StatusBadRequest, http.StatusUpgradeRequired, http.StatusOK:
		return "this is not a WebSocket upgrade as the relay expects it; a proxy may drop the Upgrade or Sec-WebSocket-Protocol header"
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return "something before the relay asks for a login; check the URL and the proxy settings"
	case http.StatusForbidden:
		return "the upgrade was forbidden; a proxy may add an Origin header, or does not let WebSockets pass"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return "there is no relay at this URL; check scheme, host and port; a path of the URL is of no account"
	}
	return ""
}
