package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// MinToken and MaxToken bound a token's length in bytes.
	MinToken = 16
	MaxToken = 512

	// loginFor is how long a login lasts; a stream ends with it.
	loginFor = 12 * time.Hour
	// knownFor is how long a browser counts as one that logged in before.
	knownFor = 180 * 24 * time.Hour
	// browserBytes is the length of a browser's number.
	browserBytes = 16
)

// auth turns the token into cookies and judges them. A cookie is a time with a signature under a key made from the token:
// nothing is kept for it, a restart of the relay doesn't log out, and another token does.
type auth struct {
	now    func() time.Time
	token  [sha256.Size]byte
	key    []byte
	seen   []byte // key of the numbers of browsers
	cookie string // its name: browsers share cookies between the ports of a machine
	tries  *tries
}

func newAuth(token string, now func() time.Time) (*auth, error) {
	if err := CheckToken(token); err != nil {
		return nil, err
	}
	derive := func(label string) []byte {
		mac := hmac.New(sha256.New, []byte(token))
		mac.Write([]byte("pushrelay debug page: " + label))
		return mac.Sum(nil)
	}
	return &auth{
		now: now, token: sha256.Sum256([]byte(token)), key: derive("cookie"), seen: derive("seen"), cookie: "pushrelay-" + hex.EncodeToString(derive("name")[:4]),
		tries: newTries(now),
	}, nil
}

// CheckToken refuses tokens that can be guessed, or that can't be typed.
func CheckToken(token string) error {
	if len(token) < MinToken || len(token) > MaxToken {
		return fmt.Errorf("the token has %d characters; it must have from %d to %d", len(token), MinToken, MaxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the token must be letters, digits and signs, without spaces")
	}
	return nil
}

// good compares in a time that tells nothing of the token, its length included.
func (a *auth) good(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1
}

func (a *auth) sign(until []byte) []byte { return signed(a.key, until) }

func signed(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// issue answers a login's cookie.
func (a *auth) issue(secure bool) *http.Cookie {
	until := binary.BigEndian.AppendUint64(nil, uint64(a.now().Add(loginFor).Unix())) //nolint:gosec // after 1970
	c := a.blank(secure)
	c.Value = base64.RawURLEncoding.EncodeToString(append(until, a.sign(until)...))
	c.MaxAge = int(loginFor.Seconds())
	return c
}

// blank is a cookie that ends a login.
func (a *auth) blank(secure bool) *http.Cookie {
	return &http.Cookie{
		Name: a.cookie, Path: Prefix, MaxAge: -1, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}

// remember answers the cookie of a browser that just logged in. It opens nothing: it says that wrong tokens of others aren't
// this browser's.
func (a *auth) remember(r *http.Request, secure bool) *http.Cookie {
	number := a.browser(r)
	if number == nil {
		number = make([]byte, browserBytes)
		rand.Read(number) // it never fails
	}
	c := a.blank(secure)
	c.Name, c.MaxAge = a.seenCookie(), int(knownFor.Seconds())
	c.Value = base64.RawURLEncoding.EncodeToString(append(number, signed(a.seen, number)...))
	return c
}

func (a *auth) seenCookie() string { return a.cookie + "-seen" }

// browser answers the number of a browser that logged in before; nil for another one.
func (a *auth) browser(r *http.Request) []byte {
	for _, c := range r.CookiesNamed(a.seenCookie()) {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(c.Value)
		if err == nil && len(raw) == browserBytes+sha256.Size && hmac.Equal(signed(a.seen, raw[:browserBytes]), raw[browserBytes:]) {
			return raw[:browserBytes:browserBytes]
		}
	}
	return nil
}

// until answers when the login of a request ends; the zero time when it has none.
func (a *auth) until(r *http.Request) time.Time {
	for _, c := range r.CookiesNamed(a.cookie) {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(c.Value)
		if err != nil || len(raw) != 8+sha256.Size || !hmac.Equal(a.sign(raw[:8]), raw[8:]) {
			continue
		}
		at := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0) //nolint:gosec // it was signed here
		if a.now().Before(at) {
			return at
		}
	}
	return time.Time{}
}

func (a *auth) valid(r *http.Request) bool { return !a.until(r).IsZero() }
