package poll_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session/poll"
	"pushrelay/store"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// everyEndpoint answers a request for each signed endpoint that passes all checks.
func everyEndpoint(r *rig, dialect wire.Dialect) map[string]*call {
	d, s := r.daemon("d1"), r.site("shop")
	d.dialect, s.dialect = dialect, dialect
	g := wire.Grant{JobID: "job", LeaseID: "lease"}
	return map[string]*call{
		"claim": d.claimCall(1), "fetch": d.fetchCall(g), "heartbeat": d.heartbeatCall(), "result": d.resultCall(g, "shop", "ok", 10),
		"release": d.releaseCall("shutdown", g), "enqueue": s.enqueueCall("job", "ada"),
		"payload": s.payloadCall("job", r.key("d1").Public(), 10), "cancel": s.cancelCall("job"), "pending": s.pendingCall(),
		"results": s.siteGet("shop", "results", string(dialect)),
	}
}

// replace changes what a POST says, or a GET's query.
func (c *call) replace(from, to string) {
	c.body = []byte(strings.Replace(string(c.body), from, to, 1))
	c.path = strings.Replace(c.path, strings.Trim(strings.ReplaceAll(from, `":"`, "="), `"`), strings.Trim(strings.ReplaceAll(to, `":"`, "="), `"`), 1)
}

// Every endpoint refuses alike, with exactly these bodies.
func TestEveryEndpointRefusesAlike(t *testing.T) {
	const (
		versions = `"supported":["0","2"],"minimum":"0"}`
		unsigned = `{"error":"unauthorized","message":"this request is not signed"}`
		invalid  = `{"error":"unauthorized","message":"this request's signature is not valid"}`
	)
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		version := `"protocolVersion":"` + string(dialect) + `"`
		cases := []struct {
			name   string
			change func(c *call)
			status int
			body   string
		}{
			{
				"a foreign version", func(c *call) { c.replace(version, `"protocolVersion":"1"`); c.unsigned = true }, 400,
				`{"error":"unsupported-protocol-version","message":"this relay speaks protocolVersion 0, 2 and not the declared one; upgrade the client, or this relay if the client is newer",` + versions,
			},
			{
				"no version", func(c *call) { c.replace(version, `"protocolVersion":""`); c.unsigned = true }, 400,
				`{"error":"unsupported-protocol-version","message":"no protocolVersion was declared; this relay speaks 0, 2, declare one of them or upgrade the client",` + versions,
			},
			{"unsigned", func(c *call) { c.unsigned = true }, 401, unsigned},
			{"a time that is none", func(c *call) { c.issuedText = "now" }, 401, unsigned},
			{
				"a caller that isn't known", func(c *call) { c.caller = "nobody" }, 401,
				`{"error":"unauthorized","message":"this relay does not know this caller; is it approved, and is this the right relay?"}`,
			},
			{"a foreign key", func(c *call) { c.keys = r.key("d3") }, 401, invalid},
			{"another endpoint's signature", func(c *call) { c.endpoint = "other" }, 401, invalid},
			{"another body's signature", func(c *call) { c.signs = []byte("other") }, 401, invalid},
			{
				"another's id", func(c *call) {
					c.replace(`":"`+c.caller+`"`, `":"other"`)
					c.path = strings.Replace(c.path, "siteId=shop", "siteId=other", 1)
				}, 403,
				`{"error":"forbidden","message":"the id in this request is not the signer's"}`,
			},
		}
		for endpoint := range everyEndpoint(r, dialect) {
			for _, tc := range cases {
				t.Run(endpoint+" "+tc.name, func(t *testing.T) {
					c := everyEndpoint(r, dialect)[endpoint]
					tc.change(c)
					a := r.send(c)
					assert.Equal(t, tc.status, a.status)
					assert.Equal(t, tc.body, a.body)
					_, err := wire.ParseWireError(dialect, []byte(a.body))
					assert.NoError(t, err)
				})
			}
			t.Run(endpoint+" one member too many", func(t *testing.T) {
				c := everyEndpoint(r, dialect)[endpoint]
				if c.method == http.MethodGet {
					c.path = strings.Replace(c.path, "siteId=shop&", "", 1)
				} else {
					c.body = append([]byte(`{"extra":1,`), c.body[1:]...)
				}
				a := r.send(c)
				assert.Equal(t, http.StatusBadRequest, a.status)
				e, err := wire.ParseWireError(dialect, []byte(a.body))
				require.NoError(t, err)
				assert.Equal(t, wire.CodeBadRequest, e.Code)
				assert.NotContains(t, a.body, "extra", "what a client wrote isn't repeated")
			})
		}
	})
}

func TestEveryEndpointOfADaemonRefusesRevokedOnes(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		calls := everyEndpoint(r, dialect)
		r.replace(r.parties("blog").Consent("ada", "shop").MarkRevoked("d1", true))
		for endpoint, c := range calls {
			if c.role == wire.RoleSite {
				continue
			}
			c.body = []byte(`{"protocolVersion":"` + string(dialect) + `"}`) // before the schema
			a := r.send(c)
			assert.Equal(t, http.StatusForbidden, a.status, endpoint)
			assert.Equal(t, `{"error":"revoked","message":"this caller is revoked; pair again to come back"}`, a.body, endpoint)
		}
	})
}

// A replay within its freshness changes nothing more.
func TestReplaysAreHarmless(t *testing.T) {
	r := newRig(t)
	d, s := r.daemon("d1"), r.quiet("shop")
	enqueue := s.enqueueCall("job", "ada")
	first := r.send(enqueue)
	assert.Equal(t, first.body, r.send(enqueue).body)
	claim := d.claimCall(1)
	jobs := d.claimed(r.send(claim))
	require.Len(t, jobs, 1)
	assert.Empty(t, d.claimed(r.send(claim)))
	g := grantOf(jobs[0])
	payload := s.payloadCall("job", s.pending()[0].Device, 10)
	assert.Equal(t, r.send(payload).body, r.send(payload).body)
	fetch := d.fetchCall(g)
	assert.Equal(t, r.send(fetch).body, r.send(fetch).body)
	beat := d.heartbeatCall(g)
	assert.Equal(t, http.StatusOK, r.send(beat).status)
	result := d.resultCall(g, "shop", "ok", 10)
	assert.Equal(t, `{"accepted":true,"state":"done"}`, r.send(result).body)
	assert.Equal(t, `{"accepted":false,"duplicate":true,"state":"done"}`, r.send(result).body)
	release := d.releaseCall("refused", g)
	assert.Equal(t, `{"released":[]}`, r.send(release).body, "nothing reopens a done job")
	cancel := s.cancelCall("job")
	assert.Equal(t, `{"cancelled":true}`, r.send(cancel).body)
	assert.Equal(t, `{"jobId":"job","state":"done"}`, r.send(enqueue).body)
	require.Len(t, s.results(), 1)
}

const (
	tooLate   = `{"error":"too-late","message":"it is too late for this; stop"}`
	notFound  = `{"error":"not-found","message":"there is no such job or grant"}`
	forbidden = `{"error":"forbidden","message":"this grant isn't yours any more; stop its work"}`
)

// What the work itself refuses, at a daemon's endpoints.
func TestWorkOfDaemonsThatIsRefused(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		d, other, s := r.daemon("d1"), r.daemon("d2"), r.quiet("shop")
		d.dialect, other.dialect, s.dialect = dialect, dialect, dialect
		for _, id := range []string{"held", "cancelled", "done", "stale"} {
			s.enqueue(id, "ada")
		}
		by := map[string]wire.Grant{}
		for _, j := range d.claim(4) {
			by[j.Stub.ID] = grantOf(j)
		}
		require.Len(t, by, 4)
		s.cancel("cancelled")
		for _, j := range s.pending() {
			if j.JobID == "done" {
				s.seal(j)
			}
		}
		d.result(by["done"], "shop")
		d.release("shutdown", by["stale"])
		again := grantOf(d.claim(1)[0])
		require.Equal(t, "stale", again.JobID)

		refuses := func(name string, c *call, status int, body string) {
			t.Helper()
			a := r.send(c)
			assert.Equal(t, status, a.status, name)
			assert.Equal(t, body, a.body, name)
			_, err := wire.ParseWireError(dialect, []byte(a.body))
			assert.NoError(t, err, name)
		}
		nothing := wire.Grant{JobID: "nothing", LeaseID: "nothing"}
		refuses("not sealed", d.fetchCall(by["held"]), 409, `{"error":"not-ready","message":"the payload isn't sealed yet; ask again"}`)
		refuses("cancelled", d.fetchCall(by["cancelled"]), 409, tooLate)
		refuses("done", d.fetchCall(by["done"]), 409, `{"error":"too-late","message":"the job is done"}`)
		refuses("an old lease", d.fetchCall(by["stale"]), 403, forbidden)
		refuses("none", d.fetchCall(nothing), 404, notFound)
		refuses("another's job without its lease", other.fetchCall(wire.Grant{JobID: "held", LeaseID: "nothing"}), 404, notFound)
		refuses("another's", other.fetchCall(by["held"]), 403, forbidden)

		refuses("a result for an old lease", d.resultCall(by["stale"], "shop", "ok", 10), 403, forbidden)
		refuses("a result for none", d.resultCall(nothing, "shop", "ok", 10), 404, notFound)
		refuses("a result for another's job", other.resultCall(wire.Grant{JobID: "held", LeaseID: "nothing"}, "shop", "ok", 10), 404, notFound)
		refuses("a result for another's grant", other.resultCall(by["held"], "shop", "ok", 10), 403, forbidden)
		refuses("a result for another's done grant", other.resultCall(by["done"], "shop", "ok", 10), 403, forbidden)
		swapped := d.resultCall(by["held"], "shop", "ok", 10)
		swapped.body = []byte(strings.Replace(string(swapped.body), `"direction":"result"`, `"direction":"payload"`, 1))
		refuses("a payload", swapped, 400, `{"error":"bad-request","message":"envelope.direction must be result"}`)
		refuses("a foreign site's key", d.resultCall(by["held"], "blog", "ok", 10), 400,
			`{"error":"bad-request","message":"envelope.recipientKeyId must be the key id of the job's site"}`)
		sender := d.resultCall(by["held"], "shop", "ok", 10)
		sender.body = []byte(strings.Replace(string(sender.body), r.key("d1").KeyID(), r.key("d2").KeyID(), 1))
		refuses("a foreign device's key", sender, 400,
			`{"error":"bad-request","message":"envelope.senderKeyId must be the key id of this device"}`)
	})
}

// What the work itself refuses, at a site's endpoints: there a too-late tells more.
func TestWorkOfSitesThatIsRefused(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t, func(r *rig, _ *hubSettings, _ *poll.Options) {
			r.store = memory.New(memory.Options{Settings: store.Settings{JobsPerSite: 2}})
		})
		d, s, blog := r.daemon("d1"), r.quiet("shop"), r.quiet("blog")
		d.dialect, s.dialect, blog.dialect = dialect, dialect, dialect
		refuses := func(name string, c *call, status int, body string) {
			t.Helper()
			a := r.send(c)
			assert.Equal(t, status, a.status, name)
			assert.Equal(t, body, a.body, name)
		}
		s.enqueue("job", "ada")
		device := r.key("d1").Public()
		const gone = `{"error":"not-found","message":"there is no such job or grant"}`
		refuses("no such job", s.payloadCall("nothing", device, 10), 404, gone)
		refuses("another's job", blog.payloadCall("job", device, 10), 404, gone)
		refuses("a queued one", s.payloadCall("job", device, 10), 409,
			`{"error":"too-late","message":"it is too late for this; stop","state":"queued"}`)
		jobs := d.claim(1)
		require.Len(t, jobs, 1)
		refuses("another device", s.payloadCall("job", r.key("d2").Public(), 10), 409,
			`{"error":"too-late","message":"it is too late for this; stop","state":"awaiting-payload"}`)
		swapped := s.payloadCall("job", device, 10)
		swapped.body = []byte(strings.Replace(string(swapped.body), `"direction":"payload"`, `"direction":"result"`, 1))
		refuses("a result", swapped, 400, `{"error":"bad-request","message":"envelope.direction must be payload"}`)
		sender := s.payloadCall("job", device, 10)
		sender.body = []byte(strings.Replace(string(sender.body), r.key("shop").KeyID(), r.key("blog").KeyID(), 1))
		refuses("a foreign key", sender, 400,
			`{"error":"bad-request","message":"envelope.senderKeyId must be the key id of a key that signs for this site now"}`)

		stub := s.enqueueCall("other", "ada")
		stub.body = []byte(strings.Replace(string(stub.body), r.key("shop").KeyID(), r.key("blog").KeyID(), 1))
		refuses("a stub of a foreign key", stub, 403,
			`{"error":"forbidden","message":"stub.site must be the key id of a key that signs for this site now"}`)
		s.enqueue("second", "ada")
		refuses("too many", s.enqueueCall("third", "ada"), 429,
			`{"error":"rate-limited","message":"the site has as many jobs on the relay as it may, results that it hasn't taken included; take those, and try again","retryAfter":30}`)
		assert.Equal(t, "30", r.send(s.enqueueCall("third", "ada")).header.Get("Retry-After"))
		refuses("none to cancel", s.cancelCall("nothing"), 200, `{"cancelled":false}`)
		refuses("another's to cancel", blog.cancelCall("job"), 200, `{"cancelled":false}`)

		past := s.enqueueCall("past", "ada")
		old := fmt.Sprintf(`"deadlineAt":%d`, time.Now().Add(-time.Hour).UnixMilli())
		i := strings.Index(string(past.body), `"deadlineAt":`)
		past.body = []byte(string(past.body[:i]) + old + "}}")
		a := r.send(past)
		assert.Equal(t, http.StatusConflict, a.status)
		e := strict[struct {
			Error      string `json:"error"`
			Message    string `json:"message"`
			ServerTime int64  `json:"serverTime"`
		}](t, a.body)
		assert.Equal(t, "too-late", e.Error)
		assert.InDelta(t, time.Now().UnixMilli(), e.ServerTime, 5000)
	})
}

// A key that was superseded signs until its window closes, its stubs and seals included.
func TestASupersededKeySignsWithinItsWindow(t *testing.T) {
	r := newRig(t)
	old := r.key("shop")
	link := succession(t, old, r.key("new").Public())
	rotated := func(until time.Time) *projection.Example {
		e := r.parties("shop").Rotated("shop", r.key("new").Public(), []wire.Succession{link}, until.UnixMilli())
		return e.Consent("ada", "shop")
	}
	until := time.Now().Add(time.Hour)
	r.replace(rotated(until))
	d, s := r.daemon("d1"), r.quiet("shop")
	s.enqueue("job", "ada")
	jobs := d.claim(1)
	require.Len(t, jobs, 1)
	s.seal(s.pending()[0])
	d.fetch(grantOf(jobs[0]))
	d.result(grantOf(jobs[0]), "shop")
	require.Len(t, s.results(), 1)

	d.dialect = wire.Dialect2
	h := d.heartbeat()
	id := r.key("new").KeyID()
	assert.Equal(t, map[string]wire.PublicIdentity{id: r.key("new").Public()}, h.Sites)
	assert.Equal(t, map[string]wire.SuccessionLine{
		id: {Succeeds: []wire.Succession{link}, RetiringUntil: until.UnixMilli()},
	}, h.Successions)
	d.dialect = wire.Dialect0
	assert.Empty(t, d.heartbeat().Successions, "it would make the answer unreadable to a client of dialect 0")

	r.replace(rotated(time.Now().Add(-time.Second)))
	assert.Equal(t, http.StatusUnauthorized, r.send(s.enqueueCall("job-2", "ada")).status)
	r.keys["shop"] = r.key("new")
	s.enqueue("job-2", "ada")
}

func TestHeartbeatsNameWhoWaitsForConsent(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect wire.Dialect) {
		r := newRig(t)
		r.replace(r.parties().Pause("ada", "shop").Consent("ada", "blog"))
		d := r.daemon("d1")
		d.dialect = dialect
		h := d.heartbeat()
		assert.Len(t, h.Sites, 2, "a paused site keeps its pin")
		assert.Equal(t, []string{r.key("shop").KeyID()}, h.AwaitingConsent)
		s := r.quiet("shop")
		s.dialect = dialect
		s.enqueue("job", "ada")
		assert.Empty(t, d.claim(1))
	})
}
