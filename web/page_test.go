package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
	"pushrelay/wire/seal"
)

const token = "a-token-that-nobody-guesses"

// fixture is a page over a hub with one site, which both run.
type fixture struct {
	t     *testing.T
	store store.RoutingStore
	hub   *hub.Hub
	page  *Page
	http  *httptest.Server
}

// example is a projection with the site shop, and the devices d1 and d2 of ada.
func example(t testing.TB) *projection.Projection {
	t.Helper()
	key := func() wire.PublicIdentity {
		k, err := seal.Generate(nil)
		require.NoError(t, err)
		return k.Public()
	}
	raw, err := new(projection.Example).Site("shop", key()).Device("ada", "d1", key()).Device("ada", "d2", key()).
		Consent("ada", "shop").Marshal()
	require.NoError(t, err)
	p, err := projection.Parse(raw)
	require.NoError(t, err)
	return p
}

func localOnly(host string) bool { return host == "127.0.0.1" || host == "localhost" }

func newFixture(t *testing.T, change func(*Config), prepare ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: memory.New(memory.Options{})}
	var err error
	f.hub, err = hub.New(hub.Config{Store: f.store, Projection: projection.NewHolder(example(t)), Log: zerolog.Nop()})
	require.NoError(t, err)
	cfg := Config{Token: token, Hub: f.hub, Host: localOnly, Log: zerolog.Nop(), Version: "test"}
	if change != nil {
		change(&cfg)
	}
	f.page, err = New(cfg)
	require.NoError(t, err)
	f.http = httptest.NewUnstartedServer(f.page)
	for _, p := range prepare {
		p(f)
	}
	f.http.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = f.hub.Run(ctx); ended <- struct{}{} }()
	go func() { f.page.Run(ctx); ended <- struct{}{} }()
	runs(t, f.page)
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		f.http.Close()
		require.NoError(t, f.store.Close())
	})
	return f
}

// runs waits until a page serves streams.
func runs(t *testing.T, p *Page) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.desk.mu.Lock()
		defer p.desk.mu.Unlock()
		return p.desk.ctx != nil
	}, patience, time.Millisecond)
}

// call is a request as a browser on the page sends it; change alters it.
func (f *fixture) call(method, path, body string, change func(*http.Request)) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.http.URL+Prefix+path, strings.NewReader(body))
	require.NoError(f.t, err)
	if method != http.MethodGet {
		r.Header.Set("Origin", f.http.URL)
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	resp, err := f.http.Client().Transport.RoundTrip(r)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (f *fixture) login(token string) *http.Response {
	f.t.Helper()
	return f.call(http.MethodPost, "/login", `{"token":"`+token+`"}`, nil)
}

// cookie logs in.
func (f *fixture) cookie() *http.Cookie {
	f.t.Helper()
	resp := f.login(token)
	require.Equal(f.t, http.StatusNoContent, resp.StatusCode)
	require.Len(f.t, resp.Cookies(), 2)
	return resp.Cookies()[0]
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	f := newFixture(t, nil)
	for name, change := range map[string]func(*Config){
		"no token": func(c *Config) { c.Token = "" }, "a short token": func(c *Config) { c.Token = "fifteen-letters" },
		"a long token": func(c *Config) { c.Token = strings.Repeat("x", MaxToken+1) }, "spaces": func(c *Config) { c.Token = "seventeen letters" },
		"not ASCII": func(c *Config) { c.Token = "sechzehn-Zeichen-ü" }, "no hosts": func(c *Config) { c.Host = nil },
		"no hub": func(c *Config) { c.Hub = nil },
	} {
		c := f.page.cfg
		change(&c)
		_, err := New(c)
		require.Error(t, err, name)
	}
}

func TestOnlyThePageItselfIsServed(t *testing.T) {
	f := newFixture(t, nil)
	own := f.http.URL
	host := strings.TrimPrefix(own, "http://")
	port := host[strings.IndexByte(host, ':'):]
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Origin")
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == "Host" {
					r.Host = pairs[i+1]
				} else {
					r.Header.Add(pairs[i], pairs[i+1])
				}
			}
		}
	}
	cases := []struct {
		name, method, path string
		change             func(*http.Request)
		want               int
	}{
		{"a visit", "GET", "/", header(), 200},
		{"a visit by name", "GET", "/", header("Host", "localhost"+port), 200},
		{"a visit from elsewhere", "GET", "/", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"), 200},
		{"a name that was rebound", "GET", "/", header("Host", "evil.example"+port), 403},
		{"a name that was rebound, with its own origin", "GET", "/", header("Host", "evil.example"+port, "Origin", "http://evil.example"+port), 403},
		{"a name that begins well", "GET", "/", header("Host", "localhost.evil.example"), 403},
		{"a login from another site", "POST", "/login", header("Origin", "https://evil.example"), 403},
		{"a login from another port of this machine", "POST", "/login", header("Origin", "http://127.0.0.1:1"), 403},
		{"a login from another name of this machine", "POST", "/login", header("Origin", "http://localhost"+port), 403},
		{"a login from nowhere", "POST", "/login", header(), 403},
		{"a login of a hidden origin", "POST", "/login", header("Origin", "null"), 403},
		{"a login with two origins", "POST", "/login", header("Origin", own, "Origin", "http://evil.example"), 403},
		{"a login with an origin of another kind", "POST", "/login", header("Origin", "ftp://"+host), 403},
		{"a script of another site asks for a file", "GET", "/app.js", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"), 403},
		{"a script of another port asks for a file", "GET", "/app.js", header("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"), 403},
		{"a script of another site asks whether it is logged in", "GET", "/session", header("Origin", "https://evil.example"), 403},
		{"a stream for another site", "GET", "/stream", header("Origin", "https://evil.example", "Upgrade", "websocket", "Connection", "Upgrade"), 403},
		{"a stream for nobody", "GET", "/stream", header("Upgrade", "websocket", "Connection", "Upgrade"), 403},
		{"a stream without a login", "GET", "/stream", header("Origin", own, "Upgrade", "websocket", "Connection", "Upgrade"), 401},
		{"a stream without an upgrade or a login", "GET", "/stream", header(), 401},
		{"who is logged in", "GET", "/session", header(), 401},
		{"the folder", "GET", "", header(), 308},
		{"an unknown path", "GET", "/none", header(), 404},
		{"out of the folder", "GET", "/../page.go", header(), 404},
		{"out of the folder, escaped", "GET", "/%2e%2e/page.go", header(), 404},
		{"out of the folder, with another slash", "GET", "/..%5cpage.go", header(), 404},
		{"within the folder's folder", "GET", "/static/app.js", header(), 404},
		{"a slash too many", "GET", "//", header(), 404},
		{"a slash within", "GET", "//app.js", header(), 404},
		{"a backslash", "GET", "/%5c", header(), 404},
		{"a NUL", "GET", "/app.js%00", header(), 404},
		{"another spelling", "GET", "/APP.JS", header(), 404},
		{"a file as a folder", "GET", "/app.js/", header(), 404},
		{"what is at the top, from within", "GET", "/../metrics", header(), 404},
		{"a stream by its escaped name, without a login", "GET", "/%73tream", header(), 401},
		{"only the head", "HEAD", "/app.js", header(), 200},
		{"the head of a route", "HEAD", "/session", header(), 405},
		{"options of nobody", "OPTIONS", "/app.js", header(), 403},
		{"options of another site", "OPTIONS", "/login", header("Origin", "https://evil.example", "Access-Control-Request-Method", "POST"), 403},
		{"options of its own", "OPTIONS", "/login", header("Origin", own), 405},
		{"a file to put", "PUT", "/app.js", header("Origin", own), 405},
		{"a file to delete", "DELETE", "/app.js", header("Origin", own), 405},
		{"a method that nobody knows", "BREW", "/session", header("Origin", own), 405},
		{"another method on a file", "POST", "/app.js", header("Origin", own), 405},
		{"another method on a route", "GET", "/login", header(), 405},
	}
	for _, c := range cases {
		resp := f.call(c.method, c.path, "{}", c.change)
		require.Equal(t, c.want, resp.StatusCode, c.name)
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'", c.name)
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), c.name)
		require.Equal(t, "DENY", resp.Header.Get("X-Frame-Options"), c.name)
		require.NotContains(t, resp.Header.Get("Content-Security-Policy"), "unsafe", c.name)
		for name := range resp.Header {
			require.False(t, strings.HasPrefix(name, "Access-Control-"), "%s: %s", c.name, name)
		}
	}
}

func TestLogin(t *testing.T) {
	f := newFixture(t, nil)
	c := f.cookie()
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, Prefix, c.Path)
	require.False(t, c.Secure, "the browser came by http")
	require.Empty(t, c.Domain)
	require.NotContains(t, c.Value, token)
	with := func(c *http.Cookie) int {
		return f.call(http.MethodGet, "/session", "", func(r *http.Request) { r.AddCookie(c) }).StatusCode
	}
	require.Equal(t, http.StatusNoContent, with(c))

	altered := *c
	altered.Value = c.Value[:len(c.Value)-1] + string(rune(c.Value[len(c.Value)-1]^1))
	require.Equal(t, http.StatusUnauthorized, with(&altered))
	longer := *c
	longer.Value = "A" + c.Value[1:]
	longer.Value = strings.Replace(longer.Value, longer.Value[:8], "AAAAAP__", 1) // far in the future
	require.Equal(t, http.StatusUnauthorized, with(&longer))
	for _, value := range []string{"", "x", strings.Repeat("A", 54), token} {
		require.Equal(t, http.StatusUnauthorized, with(&http.Cookie{Name: c.Name, Value: value}))
	}

	other, err := newAuth("another-token-entirely", time.Now)
	require.NoError(t, err)
	require.NotEqual(t, c.Name, other.cookie, "relays on one machine don't share cookies")
	forged := other.issue(false)
	forged.Name = c.Name
	require.Equal(t, http.StatusUnauthorized, with(forged))

	same, err := newAuth(token, time.Now)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, with(same.issue(false)), "a relay that was started again knows it")

	resp := f.call(http.MethodPost, "/logout", "", nil)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Equal(t, -1, resp.Cookies()[0].MaxAge)
}

func TestACookieOverTLSStaysThere(t *testing.T) {
	f := newFixture(t, nil)
	resp := f.call(http.MethodPost, "/login", `{"token":"`+token+`"}`, func(r *http.Request) {
		r.Header.Set("Origin", strings.Replace(f.http.URL, "http:", "https:", 1)) // as behind a proxy
	})
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.True(t, resp.Cookies()[0].Secure)
}

func TestALoginEnds(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a, err := newAuth(token, func() time.Time { return now })
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(a.issue(false))
	require.Equal(t, now.Add(loginFor), a.until(r))
	now = now.Add(loginFor - time.Second)
	require.True(t, a.valid(r))
	now = now.Add(time.Second)
	require.False(t, a.valid(r))
}

func TestBadLogins(t *testing.T) {
	f := newFixture(t, nil)
	for name, body := range map[string]string{
		"nothing": "", "no JSON": "token=" + token, "a list": `["` + token + `"]`, "a number": `{"token": 1}`,
		"too long": `{"token":"` + strings.Repeat("x", 3000) + `"}`,
	} {
		require.Equal(t, http.StatusBadRequest, f.call(http.MethodPost, "/login", body, nil).StatusCode, name)
	}
	form := f.call(http.MethodPost, "/login", `{"token":"`+token+`"}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	require.Equal(t, http.StatusBadRequest, form.StatusCode, "what a form of another site could send")
	for _, wrong := range []string{"", token[1:], token + "x", strings.ToUpper(token)} {
		require.Equal(t, http.StatusUnauthorized, f.login(wrong).StatusCode)
	}
}

func TestGuessingIsLimited(t *testing.T) {
	f := newFixture(t, nil)
	for range triesAtOnce {
		require.Equal(t, http.StatusUnauthorized, f.login("wrong").StatusCode)
	}
	for _, guess := range []string{"wrong", token} { // or guessing would go on, and a hit would show
		resp := f.login(guess)
		require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.Empty(t, resp.Cookies())
	}
}

func TestTries(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	tr := newTries(func() time.Time { return now })
	guess := func(addr string, right bool) (bool, time.Duration) {
		return tr.try(addr, "", func() bool { return right })
	}
	exhaust := func(addr string) {
		for range triesAtOnce {
			_, wait := guess(addr, false)
			require.Zero(t, wait)
		}
		_, wait := guess(addr, false)
		require.Greater(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, triesEvery)
	}
	exhaust("192.0.2.1:1")
	_, wait := guess("192.0.2.1:2", true)
	require.NotZero(t, wait, "whatever the port, and right tokens too")
	ok, wait := guess("192.0.2.2:1", true)
	require.True(t, ok)
	require.Zero(t, wait, "others may")
	exhaust("[2001:db8::1]:1")
	_, wait = guess("[2001:db8::ffff:1]:1", false)
	require.NotZero(t, wait, "one network")
	exhaust("not an address")

	now = now.Add(triesEvery)
	_, wait = guess("192.0.2.1:1", false)
	require.Zero(t, wait, "one more after a while")

	for i := 0; wait == 0 && i < 1000; i++ {
		_, wait = guess(httptestAddr(i), false)
	}
	require.NotZero(t, wait, "all others together are bounded too")
	_, wait = guess("127.0.0.1:1", false)
	require.Zero(t, wait, "which this machine isn't part of")
	for i := range 3 * guessers {
		guess(httptestAddr(i), false)
	}
	require.LessOrEqual(t, len(tr.byWho), guessers)
	require.Equal(t, len(tr.byWho), tr.recent.Len())
}

// Whoever guesses, from the same address too, locks nobody out who logged in before; and who did gets no more guesses.
func TestNobodyLocksAnOperatorOut(t *testing.T) {
	f := newFixture(t, nil)
	seen := f.login(token).Cookies()[1]
	require.True(t, seen.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, seen.SameSite)
	for range triesAtOnce {
		f.login("wrong")
	}
	require.Equal(t, http.StatusTooManyRequests, f.login(token).StatusCode, "a stranger")
	from := func(c *http.Cookie, token string) *http.Response {
		return f.call(http.MethodPost, "/login", `{"token":"`+token+`"}`, func(r *http.Request) { r.AddCookie(c) })
	}
	again := from(seen, token)
	require.Equal(t, http.StatusNoContent, again.StatusCode)
	require.Equal(t, seen.Value, again.Cookies()[1].Value, "it stays the one that it is")
	require.Equal(t, http.StatusUnauthorized, f.call(http.MethodGet, "/session", "", func(r *http.Request) { r.AddCookie(seen) }).StatusCode, "it opens nothing")
	for _, value := range []string{"", "x", seen.Value[1:], "A" + seen.Value[1:], f.page.auth.issue(false).Value} {
		if value != seen.Value {
			require.Equal(t, http.StatusTooManyRequests, from(&http.Cookie{Name: seen.Name, Value: value}, token).StatusCode, value)
		}
	}
	for range triesAtOnce {
		require.Equal(t, http.StatusUnauthorized, from(seen, "wrong").StatusCode)
	}
	require.Equal(t, http.StatusTooManyRequests, from(seen, token).StatusCode, "a stolen one guesses no faster")
}

func httptestAddr(i int) string {
	return "10." + string(rune('0'+i/100%10)) + "." + string(rune('0'+i/10%10)) + "." + string(rune('0'+i%10)) + ":1"
}
