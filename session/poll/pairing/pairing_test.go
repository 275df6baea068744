package pairing

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

// book is a projection with devices only.
type book struct {
	mu       sync.Mutex
	approved map[string]wire.PairPollResponse // by key id
	asked    int
}

func (b *book) Paired(keyID string, _ wire.PublicIdentity) (wire.PairPollResponse, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	r, ok := b.approved[keyID]
	return r, ok
}

func (b *book) Now() time.Time { return time.Now() }

func (b *book) approve(id wire.PublicIdentity, runner string) {
	keyID, _ := id.KeyID()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.approved[keyID] = wire.PairPollResponse{RunnerID: runner, Owner: "ada", Sites: map[string]wire.PublicIdentity{"BYOLLM-S": id}}
}

func (b *book) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

func device(t testing.TB, name string) wire.PublicIdentity {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	private := ed25519.NewKeyFromSeed(seed[:])
	box, err := ecdh.X25519().NewPrivateKey(seed[:])
	require.NoError(t, err)
	encryption := wire.EncodeBase64(box.PublicKey().Bytes())
	return wire.PublicIdentity{
		Identity: wire.EncodeBase64(private.Public().(ed25519.PublicKey)), Encryption: encryption,
		EncryptionSig: wire.EncodeBase64(ed25519.Sign(private, wire.EncryptionStatement(encryption))),
	}
}

// inBubble runs f with a Pairing in a bubble of synctest.
func inBubble(t *testing.T, change func(*Options), f func(t *testing.T, p *Pairing, b *book)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &book{approved: map[string]wire.PairPollResponse{}}
		opts := Options{Directory: b, VerificationURL: "https://control.example.org/devices", ControlPlanePublic: "KEY", Log: zerolog.Nop()}
		if change != nil {
			change(&opts)
		}
		f(t, New(opts), b)
	})
}

const startForm = `{"protocolVersion":"2","action":"start","daemon":{"version":"1.2.3","label":"laptop","platform":"linux"},"device":%s,` +
	`"capabilities":[{"kind":"llm.generate","service":"s","backendId":"b","backendClass":"http","model":"m","offerScope":"team"}]}`

func startBody(t testing.TB, id wire.PublicIdentity) string {
	t.Helper()
	raw, err := wire.Encode(id)
	require.NoError(t, err)
	return fmt.Sprintf(startForm, raw)
}

// ask answers the members of a 200, or the refusal.
func ask(t testing.TB, p *Pairing, d wire.Dialect, body, remote string) (map[string]jsontext.Value, *wire.Error) {
	t.Helper()
	raw, err := p.Pair(t.Context(), d, []byte(body), remote)
	if err != nil {
		var refused *wire.Error
		require.ErrorAs(t, err, &refused)
		return nil, refused
	}
	var out map[string]jsontext.Value
	require.NoError(t, json.Unmarshal(raw, &out), string(raw))
	return out, nil
}

func start(t testing.TB, p *Pairing, id wire.PublicIdentity) wire.PairStartResponse {
	t.Helper()
	raw, err := p.Pair(t.Context(), wire.Dialect2, []byte(startBody(t, id)), "192.0.2.1")
	require.NoError(t, err)
	var out wire.PairStartResponse
	require.NoError(t, json.Unmarshal(raw, &out, json.RejectUnknownMembers(true)))
	return out
}

func poll(t testing.TB, p *Pairing, deviceCode string) map[string]jsontext.Value {
	t.Helper()
	out, refused := ask(t, p, wire.Dialect2, fmt.Sprintf(`{"protocolVersion":"2","action":"poll","deviceCode":%q}`, deviceCode), "192.0.2.1")
	require.Nil(t, refused)
	return out
}

func status(t testing.TB, p *Pairing, deviceCode string) string {
	t.Helper()
	var s string
	require.NoError(t, json.Unmarshal(poll(t, p, deviceCode)["status"], &s))
	return s
}

func names(m map[string]jsontext.Value) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	return out
}

func TestPairingByCode(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, b *book) {
		id := device(t, "d1")
		began := time.Now()
		code := start(t, p, id)
		assert.GreaterOrEqual(t, len(code.DeviceCode), 20)
		assert.Regexp(t, `^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`, code.UserCode)
		assert.Equal(t, "https://control.example.org/devices", code.VerificationURL)
		assert.Equal(t, began.Add(10*time.Minute).UnixMilli(), code.ExpiresAt)
		assert.EqualValues(t, 2000, code.PollIntervalMs)

		pending := poll(t, p, code.DeviceCode)
		assert.Equal(t, []string{"status"}, names(pending), "nothing but the status")
		assert.JSONEq(t, `"pending"`, string(pending["status"]))

		for _, typed := range []string{code.UserCode, strings.ToLower(code.UserCode), strings.ReplaceAll(code.UserCode, "-", ""), " " + code.UserCode[:2] + " " + code.UserCode[2:]} {
			who, ok := p.Lookup(typed)
			require.True(t, ok, typed)
			keyID, err := id.KeyID()
			require.NoError(t, err)
			assert.Equal(t, Pending{
				UserCode: code.UserCode, KeyID: keyID, Key: id, Label: "laptop", Platform: "linux", Version: "1.2.3", Dialect: wire.Dialect2,
				Capabilities: []wire.Capability{{Kind: "llm.generate", Service: "s", BackendID: "b", BackendClass: "http", Model: "m", OfferScope: "team"}},
				ExpiresAt:    began.Add(10 * time.Minute),
			}, who)
		}
		assert.Equal(t, "pending", status(t, p, code.DeviceCode), "looking approves nothing")

		b.approve(id, "runner-1")
		got := poll(t, p, code.DeviceCode)
		assert.ElementsMatch(t, []string{"status", "runnerId", "owner", "sites", "controlPlanePublic"}, names(got))
		assert.JSONEq(t, `"approved"`, string(got["status"]))
		assert.JSONEq(t, `"runner-1"`, string(got["runnerId"]))
		assert.JSONEq(t, `"KEY"`, string(got["controlPlanePublic"]))

		assert.Equal(t, "expired", status(t, p, code.DeviceCode), "a code is good once")
		_, ok := p.Lookup(code.UserCode)
		assert.False(t, ok)
	})
}

// Whatever is wrong with a code looks the same and asks the projection as often.
func TestUnknownUsedAndExpiredCodesAreAlike(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, b *book) {
		used := start(t, p, device(t, "d1"))
		b.approve(device(t, "d1"), "runner-1")
		require.Equal(t, "approved", status(t, p, used.DeviceCode))
		replaced := start(t, p, device(t, "d2"))
		start(t, p, device(t, "d2"))
		late := start(t, p, device(t, "d3"))
		<-time.After(10*time.Minute - time.Millisecond)
		assert.Equal(t, "pending", status(t, p, late.DeviceCode))
		<-time.After(time.Millisecond)
		b.approve(device(t, "d2"), "runner-2")
		b.approve(device(t, "d3"), "runner-3")
		for name, code := range map[string]string{
			"used": used.DeviceCode, "replaced": replaced.DeviceCode, "expired": late.DeviceCode,
			"unknown": strings.Repeat("A", 52), "a user code": used.UserCode + strings.Repeat("-", 20), "short of one": late.DeviceCode[:51],
		} {
			before := b.questions()
			got := poll(t, p, code)
			assert.Equal(t, []string{"status"}, names(got), name)
			assert.JSONEq(t, `"expired"`, string(got["status"]), name)
			assert.Equal(t, 1, b.questions()-before, name)
		}
		for _, typed := range []string{used.UserCode, replaced.UserCode, late.UserCode, "BBBB-BBBB"} {
			_, ok := p.Lookup(typed)
			assert.False(t, ok)
		}
		assert.Empty(t, p.byDevice)
		assert.Empty(t, p.byUser)
		assert.Empty(t, p.byKey)
	})
}

func TestOneCodeForAKey(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		first := start(t, p, device(t, "d1"))
		second := start(t, p, device(t, "d1"))
		assert.Equal(t, "expired", status(t, p, first.DeviceCode))
		assert.Equal(t, "pending", status(t, p, second.DeviceCode))
		_, ok := p.Lookup(first.UserCode)
		assert.False(t, ok)
	})
}

func TestAtMost500Codes(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		codes := []string{}
		add := func(i int) *wire.Error {
			out, refused := ask(t, p, wire.Dialect2, startBody(t, device(t, fmt.Sprint("d", i))), fmt.Sprint("addr", i))
			if refused == nil {
				var code string
				require.NoError(t, json.Unmarshal(out["deviceCode"], &code))
				codes = append(codes, code)
			}
			<-time.After(time.Second / allStarts)
			return refused
		}
		for i := range maxCodes {
			require.Nil(t, add(i))
		}
		refused := add(maxCodes)
		require.NotNil(t, refused)
		assert.Equal(t, wire.CodeRateLimited, refused.Code)
		assert.Positive(t, refused.RetryAfter)
		assert.Nil(t, add(0), "a key's own code makes room for its next one")
		assert.Equal(t, "pending", status(t, p, codes[1]), "nobody else's went")
		assert.Len(t, p.byDevice, maxCodes)
		<-time.After(codeFor)
		assert.Nil(t, add(maxCodes), "the old ones are over")
		assert.Len(t, p.byDevice, 1)
		assert.Len(t, p.order, 1)
	})
}

// A few addresses that begin as many pairings as they may can't keep others from theirs.
func TestAFewAddressesDontTakeAllCodes(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		begin := func(name, addr string) (string, *wire.Error) {
			<-time.After(time.Second / allStarts)
			out, refused := ask(t, p, wire.Dialect2, startBody(t, device(t, name)), addr)
			var code string
			if refused == nil {
				require.NoError(t, json.Unmarshal(out["deviceCode"], &code))
			}
			return code, refused
		}
		early, refused := begin("early", "honest")
		require.Nil(t, refused)
		for i := 0; len(p.byDevice) < maxCodes; i++ {
			_, _ = begin(fmt.Sprint("flood", i), fmt.Sprint("flood", i%30)) // those over their rate are refused
		}
		late, refused := begin("late", "another")
		require.Nil(t, refused)
		for i := range 100 {
			_, _ = begin(fmt.Sprint("more", i), fmt.Sprint("flood", i%30))
		}
		assert.Equal(t, "pending", status(t, p, early))
		assert.Equal(t, "pending", status(t, p, late))
		assert.Len(t, p.byDevice, maxCodes)
	})
}

// Many restarts of one device leave nothing behind, even behind a code that stays good.
func TestReplacedCodesAreForgotten(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		for minute := range 30 {
			if minute%9 == 0 {
				start(t, p, device(t, "other"))
			}
			for range 200 {
				require.True(t, p.add(&code{
					hash: sha256.Sum256([]byte(fmt.Sprint(minute, len(p.order)))), pending: Pending{KeyID: "d1", ExpiresAt: time.Now().Add(codeFor)},
				}, time.Now()))
			}
			<-time.After(time.Minute)
			assert.LessOrEqual(t, len(p.order), 2*maxCodes+1)
			assert.LessOrEqual(t, len(p.byDevice), 2)
		}
	})
}

func TestDirectForm(t *testing.T) {
	inBubble(t, func(o *Options) { o.VerificationURL = "" }, func(t *testing.T, p *Pairing, b *book) {
		id := device(t, "d1")
		raw, err := wire.Encode(id)
		require.NoError(t, err)
		body := fmt.Sprintf(`{"protocolVersion":"2","owner":"ada","device":%s}`, raw)
		_, unknown := ask(t, p, wire.Dialect2, body, "a")
		require.NotNil(t, unknown)
		b.approve(id, "runner-1")
		got, refused := ask(t, p, wire.Dialect2, body, "a")
		require.Nil(t, refused)
		assert.ElementsMatch(t, []string{"status", "runnerId", "owner", "sites", "controlPlanePublic"}, names(got))
		again, refused := ask(t, p, wire.Dialect2, body, "a")
		require.Nil(t, refused)
		assert.Equal(t, got, again, "repeatable")
		_, other := ask(t, p, wire.Dialect2, strings.Replace(body, `"ada"`, `"bob"`, 1), "a")
		assert.Equal(t, unknown, other, "whose it is isn't told")
		assert.Equal(t, wire.CodeNotFound, other.Code)
	})
}

// Dialect 0 has no signed grants, and its answers are closed shapes.
func TestDialectsKeepToThemselves(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, b *book) {
		id := device(t, "d1")
		b.approve(id, "runner-1")
		raw, err := wire.Encode(id)
		require.NoError(t, err)
		got, refused := ask(t, p, wire.Dialect0, fmt.Sprintf(`{"protocolVersion":"0","owner":"ada","device":%s}`, raw), "a")
		require.Nil(t, refused)
		assert.ElementsMatch(t, []string{"status", "runnerId", "owner", "sites"}, names(got))
		code := start(t, p, id)
		got, refused = ask(t, p, wire.Dialect0, fmt.Sprintf(`{"protocolVersion":"0","action":"poll","deviceCode":%q}`, code.DeviceCode), "a")
		require.Nil(t, refused)
		assert.JSONEq(t, `"expired"`, string(got["status"]), "another dialect's code")
		assert.Equal(t, "approved", status(t, p, code.DeviceCode))
	})
}

func TestRefusals(t *testing.T) {
	good := startBody(t, device(t, "d1"))
	with := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	for name, c := range map[string]struct {
		url    string
		body   string
		status int
		code   wire.ErrorCode
	}{
		"start without a URL":     {"", good, 501, wire.CodeBadRequest},
		"poll without a URL":      {"", `{"protocolVersion":"2","action":"poll","deviceCode":"xxxxxxxxxxxxxxxxxxxx"}`, 501, wire.CodeBadRequest},
		"another action":          {"u", with(`"start"`, `"approve"`), 400, wire.CodeBadRequest},
		"a null action":           {"u", with(`"start"`, `null`), 400, wire.CodeBadRequest},
		"an unknown member":       {"u", with(`"action"`, `"secret":1,"action"`), 400, wire.CodeBadRequest},
		"a member twice":          {"u", with(`"action"`, `"action":"poll","action"`), 400, wire.CodeBadRequest},
		"a label too long":        {"u", with(`laptop`, strings.Repeat("x", 121)), 400, wire.CodeBadRequest},
		"another platform":        {"u", with(`linux`, `plan9`), 400, wire.CodeBadRequest},
		"a scope of dialect 0":    {"u", with(`team`, `public`), 400, wire.CodeBadRequest},
		"a key that isn't one":    {"u", with(device(t, "d1").Identity, "AAAA"), 400, wire.CodeBadRequest},
		"somebody else's box":     {"u", with(device(t, "d1").Encryption, device(t, "d2").Encryption), 400, wire.CodeBadRequest},
		"a short code":            {"u", `{"protocolVersion":"2","action":"poll","deviceCode":"xxx"}`, 400, wire.CodeBadRequest},
		"an endless code":         {"u", `{"protocolVersion":"2","action":"poll","deviceCode":"` + strings.Repeat("x", 257) + `"}`, 400, wire.CodeBadRequest},
		"direct without a device": {"u", `{"protocolVersion":"2","owner":"ada"}`, 400, wire.CodeBadRequest},
		"direct with more":        {"u", `{"protocolVersion":"2","owner":"ada","runnerId":"r","device":{}}`, 400, wire.CodeBadRequest},
		"not an object":           {"u", `[]`, 400, wire.CodeBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options) { o.VerificationURL = c.url }, func(t *testing.T, p *Pairing, _ *book) {
				_, refused := ask(t, p, wire.Dialect2, c.body, "a")
				require.NotNil(t, refused)
				assert.Equal(t, c.code, refused.Code)
				assert.Equal(t, c.status, refused.HTTPStatus())
				assert.NotContains(t, refused.Message, "secret")
				assert.Empty(t, p.byDevice)
			})
		})
	}
}

// Guessing is slow for one address, and costs others nothing.
func TestGuessingIsLimited(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		code := start(t, p, device(t, "d1"))
		guess := func(addr string) *wire.Error {
			_, refused := ask(t, p, wire.Dialect2, fmt.Sprintf(`{"protocolVersion":"2","action":"poll","deviceCode":%q}`, strings.Repeat("A", 52)), addr)
			return refused
		}
		tries, refused := 0, (*wire.Error)(nil)
		for refused == nil {
			tries++
			refused = guess("198.51.100.9")
		}
		assert.Equal(t, addrBurst+1, tries)
		assert.Equal(t, wire.CodeRateLimited, refused.Code)
		assert.Equal(t, 1, refused.RetryAfter)
		assert.Equal(t, "pending", status(t, p, code.DeviceCode))
		<-time.After(time.Second)
		for range addrRequests {
			assert.Nil(t, guess("198.51.100.9"))
		}
		assert.NotNil(t, guess("198.51.100.9"))
	})
}

func TestStartsAreLimited(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		refusals := 0
		for i := range 30 {
			if _, refused := ask(t, p, wire.Dialect2, startBody(t, device(t, fmt.Sprint(i))), "a"); refused != nil {
				assert.Equal(t, wire.CodeRateLimited, refused.Code)
				assert.GreaterOrEqual(t, refused.RetryAfter, 1)
				refusals++
			}
		}
		assert.Equal(t, 10, refusals)
	})
}

// A flood of addresses is bounded in memory, and leaves those that were there alone.
func TestManyAddresses(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, _ *book) {
		now := time.Now()
		for i := range 3 * maxAddrs {
			p.limits.of(fmt.Sprint(i), now).requests.AllowN(now, 1)
		}
		assert.Len(t, p.limits.by, maxAddrs)
		assert.NotSame(t, p.limits.rest, p.limits.of("0", now))
		assert.Same(t, p.limits.rest, p.limits.of("new", now))
		<-time.After(time.Minute)
		assert.NotSame(t, p.limits.rest, p.limits.of("new", time.Now()), "idle ones are forgotten")
		assert.Len(t, p.limits.by, 1)
	})
}

// Many polls of one code while the projection changes: exactly one of them is approved.
func TestApprovalIsToldOnce(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *Pairing, b *book) {
		id := device(t, "d1")
		code := start(t, p, id)
		var told, failed int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if i == 25 {
					b.approve(id, "runner-1")
				}
				raw, err := p.Pair(t.Context(), wire.Dialect2, []byte(fmt.Sprintf(`{"protocolVersion":"2","action":"poll","deviceCode":%q}`, code.DeviceCode)), "a")
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(string(raw), "approved") {
					told++
				}
				if err != nil {
					failed++
				}
			})
		}
		all.Wait()
		if status(t, p, code.DeviceCode) == "approved" {
			told++
		}
		assert.Equal(t, 1, told)
		assert.Zero(t, failed)
	})
}

func TestUserCodes(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		c := newUserCode()
		assert.Len(t, c, 9)
		assert.Equal(t, c, normalUserCode(c))
		seen[c] = true
	}
	assert.Greater(t, len(seen), 995)
	for _, typed := range []string{"", "BBBB", "BBBB-BBBBB", "AAAA-AAAA", "BBBB-BBB1", strings.Repeat("-", 100), "BBBB\x00BBBB", "ĸĸĸĸ-ĸĸĸĸ"} {
		assert.Empty(t, normalUserCode(typed), typed)
	}
}

func FuzzPair(f *testing.F) {
	f.Add([]byte(startBody(f, device(f, "d1"))))
	f.Add([]byte(`{"protocolVersion":"2","action":"poll","deviceCode":"xxxxxxxxxxxxxxxxxxxx"}`))
	f.Add([]byte(`{"protocolVersion":"2","owner":"ada","device":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := New(Options{Directory: &book{}, VerificationURL: "u", Log: zerolog.Nop()})
		out, err := p.Pair(t.Context(), wire.Dialect2, raw, "a")
		if err != nil {
			var refused *wire.Error
			require.True(t, errors.As(err, &refused))
			return
		}
		require.True(t, jsontext.Value(out).IsValid())
	})
}
