package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/wire"
)

const patience = 30 * time.Second

// eye is a browser's end of a stream.
type eye struct {
	f *fixture
	c *websocket.Conn
}

// see opens a stream as the page does.
func (f *fixture) see(site string, cookie *http.Cookie) *eye {
	f.t.Helper()
	header := http.Header{"Origin": {f.http.URL}, "Cookie": {cookie.Name + "=" + cookie.Value}}
	url := strings.Replace(f.http.URL, "http:", "ws:", 1) + Prefix + "/stream"
	if site != "" {
		url += "?site=" + site
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header})
	if resp != nil && resp.Body != nil {
		defer func() { _ = resp.Body.Close() }()
	}
	require.NoError(f.t, err)
	c.SetReadLimit(1 << 20)
	f.t.Cleanup(func() { _ = c.CloseNow() })
	return &eye{f, c}
}

func (e *eye) say(text string) {
	e.f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(e.f.t, e.c.Write(ctx, websocket.MessageText, []byte(text)))
}

// until reads until an update is as wanted.
func (e *eye) until(what string, ok func(shown) bool) shown {
	e.f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, raw, err := e.c.Read(ctx)
		require.NoError(e.f.t, err, what)
		if strings.Contains(string(raw), `"type":"hello"`) {
			continue
		}
		var u shown
		require.NoError(e.f.t, json.Unmarshal(raw, &u, json.MatchCaseInsensitiveNames(true)))
		if ok(u) {
			return u
		}
	}
}

// end reads until the stream ends and answers its code.
func (e *eye) end() websocket.StatusCode {
	e.f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if _, _, err := e.c.Read(ctx); err != nil {
			require.NoError(e.f.t, ctx.Err(), "it doesn't end")
			return websocket.CloseStatus(err)
		}
	}
}

func (f *fixture) enqueue(ids ...string) {
	f.t.Helper()
	var stubs []wire.Stub
	for _, id := range ids {
		stubs = append(stubs, wire.Stub{
			ID: id, Kind: "llm.generate", Owner: "ada", Site: "BYOLLM-S", Audience: "self", SizeClass: "small",
			DeadlineAt: time.Now().Add(time.Hour).UnixMilli(), Raw: []byte(`{"secret":"stub text"}`),
		})
	}
	answers, err := f.store.Enqueue(context.Background(), "shop", wire.Dialect0, stubs)
	require.NoError(f.t, err)
	for _, a := range answers {
		require.NoError(f.t, a.Err)
	}
}

// grant claims one job, seals and runs it.
func (f *fixture) grant() wire.Grant {
	f.t.Helper()
	got, err := f.store.Claim(context.Background(), store.Claim{
		Runner: "d1", Owner: "ada", Device: "BYOLLM-D", Dialect: wire.Dialect0, Routes: []store.Route{{Site: "shop", Owner: "ada"}},
		Kinds: []string{"llm.generate"}, Max: 1, Slots: 9, LeaseFor: time.Minute,
	})
	require.NoError(f.t, err)
	require.Len(f.t, got, 1)
	return wire.Grant{JobID: got[0].Stub.ID, LeaseID: got[0].Lease}
}

func showsJob(id, state string) func(shown) bool {
	return func(u shown) bool {
		if u.Rows == nil {
			return false
		}
		for _, j := range u.Rows.Changed {
			if j.Job == id && j.State == state {
				return true
			}
		}
		return false
	}
}

func TestAStreamShowsAJobsLife(t *testing.T) {
	f := newFixture(t, nil)
	f.enqueue("j")
	e := f.see("shop", f.cookie())
	e.say(`{"rows":50,"job":"j"}`)
	u := e.until("a snapshot", func(u shown) bool { return u.Rows != nil })
	require.True(t, u.Fresh)
	u = e.until("why", func(u shown) bool { return showsJob("j", "queued")(u) && len(u.Rows.Changed[0].Why) > 0 })
	require.EqualValues(t, "no-site-session", u.Rows.Changed[0].Why[0].Code)
	g := f.grant()
	e.until("awaiting", showsJob("j", "awaiting"))
	env := wire.Envelope{RecipientKeyID: "BYOLLM-D", Direction: wire.DirectionPayload, Raw: []byte("ciphertext of the payload")}
	_, err := f.store.Seal(context.Background(), "shop", g, env)
	require.NoError(t, err)
	u = e.until("ready", func(u shown) bool { return showsJob("j", "ready")(u) && u.Rows.Changed[0].Payload > 0 })
	require.EqualValues(t, len(env.Raw), u.Rows.Changed[0].Payload)
	_, err = f.store.TakePayload(context.Background(), "d1", g)
	require.NoError(t, err)
	u = e.until("running", func(u shown) bool { return showsJob("j", "running")(u) && u.Rows.Changed[0].LeaseEnds > 0 })
	require.Equal(t, "BYOLLM-D", u.Rows.Changed[0].DeviceKeyID)
	env.Raw = []byte("ciphertext of the result")
	_, err = f.store.Complete(context.Background(), "d1", g, env, wire.DispositionOK)
	require.NoError(t, err)
	e.until("done", func(u shown) bool { return showsJob("j", "done")(u) && u.Rows.Changed[0].Result == int64(len(env.Raw)) })
	require.NoError(t, f.store.Collect(context.Background(), "shop", []wire.Grant{g}))
	e.until("collected, with its history", func(u shown) bool {
		return u.Job != nil && u.Job.Timeline != nil && len(u.Job.Timeline.Steps) == 7 && u.Job.Timeline.Steps[5].Word == "ok"
	})
}

// What comes over a stream is searched for what may never be there.
func TestNoContentOnAStream(t *testing.T) {
	f := newFixture(t, nil)
	f.enqueue("j")
	g := f.grant()
	_, err := f.store.Seal(context.Background(), "shop", g, wire.Envelope{RecipientKeyID: "BYOLLM-D", Raw: []byte("ciphertext")})
	require.NoError(t, err)
	e := f.see("shop", f.cookie())
	e.say(`{"rows":50,"job":"j"}`)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all strings.Builder
	for !strings.Contains(all.String(), `"devices"`) || !strings.Contains(all.String(), `"timeline"`) || !strings.Contains(all.String(), `"payload"`) {
		_, raw, err := e.c.Read(ctx)
		require.NoError(t, err)
		all.Write(raw)
	}
	for _, word := range []string{"ciphertext", "stub text", "ignature", "encryption", "roster", "member", token} {
		require.NotContains(t, all.String(), word)
	}
}

func TestAStreamOfAllSites(t *testing.T) {
	f := newFixture(t, nil)
	f.enqueue("a", "b")
	e := f.see("", f.cookie())
	e.say(`{}`)
	u := e.until("the list", func(u shown) bool { return u.Sites != nil })
	require.Equal(t, "shop", u.Sites.List[0].Site)
	require.Equal(t, 2, u.Sites.List[0].Counts["queued"])
}

func TestBadViewersAreEnded(t *testing.T) {
	for name, c := range map[string]struct {
		send func(e *eye)
		code websocket.StatusCode
	}{
		"no JSON":   {func(e *eye) { e.say("look") }, websocket.StatusPolicyViolation},
		"a list":    {func(e *eye) { e.say("[]") }, websocket.StatusPolicyViolation},
		"too large": {func(e *eye) { e.say(`{"text":"` + strings.Repeat("x", maxLookBytes) + `"}`) }, websocket.StatusMessageTooBig},
		"a flood": {func(e *eye) {
			for range 10 * looksPerSecond {
				if e.c.Write(context.Background(), websocket.MessageText, []byte(`{}`)) != nil {
					return // it ended already
				}
			}
		}, websocket.StatusPolicyViolation},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			e := f.see("shop", f.cookie())
			c.send(e)
			require.Equal(t, c.code, e.end())
		})
	}
}

func TestLooksAreKeptWithinBounds(t *testing.T) {
	l, err := parseLook([]byte(`{"from":-5,"rows":1000000,"text":"` + strings.Repeat("x", 999) + `","job":"` + strings.Repeat("j", 300) + `"}`))
	require.NoError(t, err)
	require.Zero(t, l.From)
	require.Equal(t, maxWindow, l.Rows)
	require.Len(t, l.Text, maxFilterBytes)
	require.Empty(t, l.Job)
}

func FuzzParseLook(f *testing.F) {
	f.Add([]byte(`{"from":1,"rows":50,"states":["queued"],"text":"a","newest":true,"job":"j","hidden":false}`))
	f.Add([]byte(`{}`))
	f.Add([]byte("{\"text\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parseLook(raw)
		if err == nil && (l.From < 0 || l.Rows < 0 || l.Rows > maxWindow || len(l.Text) > maxFilterBytes || len(l.Job) > wire.MaxIDBytes) {
			t.Errorf("%+v", l)
		}
	})
}

func TestAStreamEndsWithItsLogin(t *testing.T) {
	const left = 300 * time.Millisecond
	f := newFixture(t, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(left + time.Second - loginFor) } // until is cut to seconds
	})
	e := f.see("shop", f.cookie())
	require.EqualValues(t, 4401, e.end())
}

func TestStreamsEndWithTheRelay(t *testing.T) {
	var page *Page
	f := newFixture(t, nil, func(f *fixture) { // another page that can be ended before the fixture is
		var err error
		page, err = New(f.page.cfg)
		require.NoError(f.t, err)
		f.http.Config.Handler = page
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		page.Run(ctx)
		close(ended)
	}()
	var e *eye
	cookie := f.cookie()
	runs(t, page)
	e = f.see("shop", cookie)
	e.say(`{"rows":5}`)
	e.until("a snapshot", func(u shown) bool { return u.Fresh })
	cancel()
	require.Equal(t, websocket.StatusGoingAway, e.end())
	<-ended
	resp := f.call(http.MethodGet, "/stream?site=shop", "", func(r *http.Request) {
		r.AddCookie(cookie)
		for k, v := range map[string]string{
			"Origin": f.http.URL, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} {
			r.Header.Set(k, v)
		}
	})
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}

func TestTwoHundredViewers(t *testing.T) {
	f := newFixture(t, nil)
	cookie := f.cookie()
	eyes := make([]*eye, 200)
	for i := range eyes {
		eyes[i] = f.see("shop", cookie)
		eyes[i].say(fmt.Sprintf(`{"rows":20,"text":"%s"}`, []string{"", "j", "ada", "llm"}[i%4]))
	}
	for _, e := range eyes {
		e.until("a snapshot", func(u shown) bool { return u.Rows != nil && !u.Rows.Loading })
	}
	f.enqueue("j")
	for _, e := range eyes {
		e.until("the job", showsJob("j", "queued"))
	}
	require.Len(t, f.page.desk.open, 1, "they share what is read")
}

// A viewer whose machine takes nothing any more is given up, and nobody notices meanwhile.
func TestAViewerThatNeverReads(t *testing.T) {
	f := newFixture(t, nil, func(f *fixture) {
		f.page.sendWithin = time.Second
		f.http.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(4 << 10)
			}
			return ctx
		}
	})
	for i := range maxWindow {
		f.enqueue(fmt.Sprint(strings.Repeat("long", 50), i))
	}
	cookie := f.cookie()
	stuck, good := f.see("shop", cookie), f.see("shop", cookie)
	good.say(`{"rows":200}`)
	good.until("a snapshot", func(u shown) bool { return u.Rows != nil && len(u.Rows.Order) == maxWindow })
	gone := func() bool {
		f.page.desk.mu.Lock()
		defer f.page.desk.mu.Unlock()
		return f.page.desk.viewers == 1
	}
	deadline := time.Now().Add(patience)
	for i := 0; !gone(); i++ {
		require.True(t, time.Now().Before(deadline), "it is never given up")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_ = stuck.c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"rows":200,"hidden":%v}`, i%2 == 0)) // a snapshot each time
		cancel()
		id := fmt.Sprint("new", i)
		f.enqueue(id)
		good.until("the others go on", func(u shown) bool { return u.Rows != nil && u.Rows.Total > maxWindow+i })
	}
}
