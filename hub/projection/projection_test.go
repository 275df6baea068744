package projection_test

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pushrelay/hub/projection"
	"pushrelay/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type party struct {
	wire.PublicIdentity
	private ed25519.PrivateKey
	id      string
}

func newParty(t testing.TB, name string) party {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	private := ed25519.NewKeyFromSeed(seed[:])
	box, err := ecdh.X25519().NewPrivateKey(seed[:])
	require.NoError(t, err)
	public, ok := private.Public().(ed25519.PublicKey)
	require.True(t, ok)
	encryption := wire.EncodeBase64(box.PublicKey().Bytes())
	return party{wire.PublicIdentity{
		Identity: wire.EncodeBase64(public), Encryption: encryption,
		EncryptionSig: wire.EncodeBase64(ed25519.Sign(private, wire.EncryptionStatement(encryption))),
	}, private, wire.KeyID(public)}
}

func (p party) hands(to party) wire.Succession {
	return wire.Succession{
		Identity:  p.PublicIdentity,
		Signature: wire.EncodeBase64(ed25519.Sign(p.private, wire.SuccessionStatement(p.id, to.id))),
	}
}

func parse(t testing.TB, e *projection.Example) *projection.Projection {
	t.Helper()
	raw, err := e.Marshal()
	require.NoError(t, err)
	p, err := projection.Parse(raw)
	require.NoError(t, err)
	return p
}

func ids(sites []*projection.Site) (out []string) {
	for _, s := range sites {
		out = append(out, s.ID)
	}
	return out
}

func TestQuestions(t *testing.T) {
	shop, forum, d1, d2 := newParty(t, "shop"), newParty(t, "forum"), newParty(t, "d1"), newParty(t, "d2")
	p := parse(t, new(projection.Example).Version(4).
		Site("shop", shop.PublicIdentity).Site("forum", forum.PublicIdentity).
		Device("ada", "d1", d1.PublicIdentity).Device("bob", "d2", d2.PublicIdentity).
		Consent("ada", "shop").Pause("ada", "forum").Consent("bob", "shop").Consent("bob", "forum").Revoke("bob", "forum").
		Consent("eve", "shop").Consent("ada", "not there"))
	v, ok := p.Version()
	require.True(t, ok)
	require.Equal(t, int64(4), v)

	site, ok := p.SiteByID("shop")
	require.True(t, ok)
	require.Equal(t, shop.id, site.KeyID)
	site, ok = p.SiteByKeyID(forum.id, time.Now())
	require.True(t, ok)
	require.Equal(t, "forum", site.ID)
	_, ok = p.SiteByKeyID(d1.id, time.Now())
	require.False(t, ok)
	dev, ok := p.DeviceByKeyID(d2.id)
	require.True(t, ok)
	require.Equal(t, "d2", dev.Runner)
	dev, ok = p.DeviceByRunner("d1")
	require.True(t, ok)
	require.Equal(t, "ada", dev.Owner)

	require.True(t, p.Stands("shop", "ada"))
	require.True(t, p.Stands("forum", "ada"), "paused ones stand")
	require.False(t, p.Stands("forum", "bob"), "a revocation wins")
	require.False(t, p.Stands("not there", "ada"))
	require.True(t, p.Paused("forum", "ada"))
	require.False(t, p.Paused("shop", "ada"))
	require.False(t, p.MayRoute(projection.Route{Site: "forum", Owner: "ada"}))
	require.True(t, p.MayRoute(projection.Route{Site: "shop", Owner: "ada"}))

	require.Equal(t, []string{"forum", "shop"}, ids(p.SitesOf("ada")))
	require.Equal(t, []string{forum.id}, p.AwaitingConsent("ada"))
	require.Empty(t, p.AwaitingConsent("bob"))
	require.Equal(t, []projection.Route{{Site: "shop", Owner: "ada"}}, p.Routes("ada"))
	require.Equal(t, []projection.Route{{Site: "shop", Owner: "bob"}}, p.Routes("bob"), "no product of sites and owners")
	require.Equal(t, []string{"ada"}, p.Carriers(projection.Route{Site: "shop", Owner: "ada"}))
	require.Empty(t, p.Routes("nobody"))
	require.Len(t, p.Sites(), 2)
	sites, devices := p.Size()
	require.Equal(t, [2]int{2, 2}, [2]int{sites, devices})
}

func TestRosters(t *testing.T) {
	shop, forum := newParty(t, "shop"), newParty(t, "forum")
	p := parse(t, new(projection.Example).Site("shop", shop.PublicIdentity).Site("forum", forum.PublicIdentity).
		Consent("ada", "shop").Consent("bob", "shop").Consent("bob", "forum").Pause("cleo", "shop").
		Roster("r1", "ada", "bob", "cleo", "dan").Roster("r2", "ada", "bob", "ada"))
	require.Equal(t, []projection.Route{{Site: "shop", Owner: "ada"}, {Site: "shop", Owner: "bob"}}, p.Routes("ada"),
		"ada didn't consent to the forum, cleo paused, dan didn't consent")
	require.Len(t, p.Routes("bob"), 2, "a roster serves one way")
	bobs := projection.Route{Site: "shop", Owner: "bob"}
	require.Equal(t, []string{"ada", "bob"}, p.Carriers(bobs))
	require.True(t, p.MayCarry(bobs, "ada"))
	require.False(t, p.MayCarry(projection.Route{Site: "shop", Owner: "ada"}, "bob"))
	cleos := projection.Route{Site: "shop", Owner: "cleo"}
	require.False(t, p.MayCarry(cleos, "ada"))
	require.True(t, p.Carries(cleos, "ada"), "a pause takes nothing back")
	require.False(t, p.Carries(projection.Route{Site: "shop", Owner: "dan"}, "ada"))
	require.False(t, p.Carries(projection.Route{Site: "forum", Owner: "bob"}, "ada"))
}

func TestRevoked(t *testing.T) {
	d1, d2, shop := newParty(t, "d1"), newParty(t, "d2"), newParty(t, "shop")
	base := func() *projection.Example {
		return new(projection.Example).Site("shop", shop.PublicIdentity).
			Device("ada", "d1", d1.PublicIdentity).Device("bob", "d2", d2.PublicIdentity)
	}
	for name, c := range map[string]struct {
		e      *projection.Example
		d1, d2 bool
	}{
		"nothing on record":             {base(), false, false},
		"marked":                        {base().MarkRevoked("d1", true), true, false},
		"the mark decides alone":        {base().MarkRevoked("d1", false).Revoke("ada", "shop").Revoke("bob", "shop"), false, false},
		"revoked and nothing stands":    {base().Consent("ada", "shop").Revoke("ada", "shop"), true, false},
		"revoked, another stands":       {base().Site("forum", newParty(t, "forum").PublicIdentity).Pause("ada", "forum").Revoke("ada", "shop"), false, false},
		"consent is gone, no revocaton": {base().Consent("bob", "shop"), false, false},
	} {
		p := parse(t, c.e)
		require.Equal(t, c.d1, p.Revoked("d1"), name)
		require.Equal(t, c.d2, p.Revoked("d2"), name)
		require.False(t, p.Revoked("unknown"), name)
	}
	require.False(t, projection.Empty().Revoked("d1"))
	require.False(t, projection.Empty().Stands("shop", "ada"))
}

func TestRotation(t *testing.T) {
	a, b, c := newParty(t, "a"), newParty(t, "b"), newParty(t, "c")
	until := time.UnixMilli(2_000_000_000_000)
	p := parse(t, new(projection.Example).Rotated("shop", c.PublicIdentity, []wire.Succession{a.hands(b), b.hands(c)}, until.UnixMilli()))
	s, ok := p.SiteByKeyID(a.id, until.Add(-time.Millisecond))
	require.True(t, ok)
	require.Len(t, s.Keys(until.Add(-time.Millisecond)), 3)
	require.Len(t, s.Keys(until), 1)
	require.True(t, s.Signs(c.id, until))
	_, ok = p.SiteByKeyID(b.id, until)
	require.False(t, ok, "its window is closed")
	require.True(t, s.Had(b.id))
	require.False(t, s.Had("other"))
	require.Equal(t, until, s.RetiringUntil())

	none := parse(t, new(projection.Example).Rotated("shop", c.PublicIdentity, []wire.Succession{b.hands(c)}, 0))
	_, ok = none.SiteByKeyID(b.id, time.UnixMilli(1))
	require.False(t, ok, "without a window a superseded key doesn't sign")

	for name, chain := range map[string][]wire.Succession{
		"not to this key": {a.hands(b)}, "in the wrong order": {b.hands(c), a.hands(b)}, "too long": make([]wire.Succession, 65),
	} {
		_, err := new(projection.Example).Rotated("shop", c.PublicIdentity, chain, 0).Marshal()
		require.Error(t, err, name)
	}
}

func TestErrorsNameThePlaceAndWhatToDo(t *testing.T) {
	d1 := newParty(t, "d1")
	identity := fmt.Sprintf(`{"identity":%q,"encryption":%q,"encryptionSig":%q}`, d1.Identity, d1.Encryption, d1.EncryptionSig)
	forged := strings.Replace(identity, d1.EncryptionSig, strings.Repeat("A", len(d1.EncryptionSig)), 1)
	for _, c := range []struct{ in, place, what string }{
		{``, "", "written whole"},
		{`[]`, "", "one JSON object"},
		{`{"sites":[]`, "", "written whole"},
		{`{"sites":[],"consents":[],"devices":[]} x`, "", "written whole"},
		{`{"sites":[],"consents":[]}`, "", `"devices" is missing`},
		{`{"sites":[],"consents":[],"devices":[],"extra":1}`, "/extra", "not known"},
		{`{"sites":[],"consents":[],"devices":[],"devices":[]}`, "/devices", "named twice"},
		{`{"sites":[],"consents":null,"devices":[]}`, "/consents", "null"},
		{`{"version":-1,"sites":[],"consents":[],"devices":[]}`, "/version", "negative"},
		{`{"version":"1","sites":[],"consents":[],"devices":[]}`, "/version", "wrong type"},
		{`{"sites":[],"consents":[{"owner":"a","siteId":""}],"devices":[]}`, "/consents/0/siteId", "1 to 256 bytes"},
		{`{"sites":[],"consents":[{"owner":"a","siteId":"s"},{"owner":"a","siteId":"s"}],"devices":[]}`, "/consents/1", "keep one"},
		{`{"sites":[],"consents":[],"devices":[],"revoked":[{"owner":"a","siteId":"s"},{"owner":"a","siteId":"s"}]}`, "/revoked/1", "keep one"},
		{`{"sites":[],"consents":[{"owner":"a","siteId":"s","until":1}],"devices":[]}`, "/consents/0/until", "not known"},
		{`{"sites":[],"consents":[],"devices":[{"owner":"a","runnerId":"r","device":` + forged + `}]}`, "/devices/0/device", "verify"},
		{`{"sites":[],"consents":[],"devices":[{"owner":"a","runnerId":"r","device":` + identity + `},{"owner":"a","runnerId":"r2","device":` + identity + `}]}`, "/devices/1/device", "another device"},
		{`{"sites":[],"consents":[],"devices":[{"runnerId":"r","device":` + identity + `}]}`, "/devices/0/owner", "1 to 256 bytes"},
		{`{"sites":[{"siteId":"s","site":` + identity + `},{"siteId":"s","site":` + identity + `}],"consents":[],"devices":[]}`, "/sites/1/siteId", "another site"},
		{`{"sites":[{"siteId":"s","site":` + identity + `},{"siteId":"t","site":` + identity + `}],"consents":[],"devices":[]}`, "/sites/1", "one site"},
		{`{"sites":[{"siteId":"s","site":` + identity + `,"retiringUntil":5}],"consents":[],"devices":[]}`, "/sites/0/retiringUntil", "no superseded key"},
		{`{"sites":[],"consents":[],"devices":[],"rosters":[{"id":"r","owner":"a"}]}`, "/rosters/0", "members is missing"},
		{`{"sites":[],"consents":[],"devices":[],"rosters":[{"id":"r","owner":"a","members":["b","b"]}]}`, "/rosters/0/members/1", "keep one"},
		{`{"sites":[],"consents":[],"devices":[],"rosters":[{"id":"r","owner":"a","members":[]},{"id":"r","owner":"a","members":[]}]}`, "/rosters/1/id", "another roster"},
	} {
		_, err := projection.Parse([]byte(c.in))
		var e *projection.Error
		require.ErrorAs(t, err, &e, c.in)
		require.Equal(t, c.place, e.Place, c.in)
		require.Contains(t, e.What, c.what, c.in)
		require.Contains(t, e.Error(), c.what)
	}
}

func TestHolder(t *testing.T) {
	h := projection.NewHolder(nil)
	require.Equal(t, uint64(1), h.Current().Generation)
	changed, cancel := h.Subscribe()
	one, two := parse(t, new(projection.Example).Version(1)), parse(t, new(projection.Example).Version(2))
	ok, err := h.Replace(two)
	require.NoError(t, err)
	require.True(t, ok)
	<-changed
	_, err = h.Replace(one)
	require.ErrorContains(t, err, "doesn't rise")
	_, err = h.Replace(parse(t, new(projection.Example)))
	require.ErrorContains(t, err, "missing")
	_, err = h.Replace(nil)
	require.Error(t, err)
	ok, err = h.Replace(parse(t, new(projection.Example).Version(2)))
	require.NoError(t, err, "the same again")
	require.False(t, ok)
	require.Equal(t, uint64(2), h.Current().Generation)
	require.Empty(t, changed)
	cancel()
	_, err = h.Replace(parse(t, new(projection.Example).Version(3)))
	require.NoError(t, err)
	require.Empty(t, changed)
}

func TestSameFor(t *testing.T) {
	shop := newParty(t, "shop")
	base := func() *projection.Example {
		return new(projection.Example).Site("shop", shop.PublicIdentity).Consent("ada", "shop").Roster("r", "ada", "bob")
	}
	p := parse(t, base())
	require.True(t, p.SameFor(parse(t, base().Consent("eve", "shop")), "ada"), "others don't matter")
	require.False(t, p.SameFor(parse(t, base().Pause("bob", "shop")), "ada"), "a member's consent does")
	require.False(t, p.SameFor(parse(t, base().Roster("s", "ada", "eve")), "ada"))
	require.False(t, p.SameFor(parse(t, new(projection.Example)), "ada"))
}

func FuzzParse(f *testing.F) {
	shop, next := newParty(f, "shop"), newParty(f, "next")
	raw, err := new(projection.Example).Version(1).Rotated("shop", next.PublicIdentity, []wire.Succession{shop.hands(next)}, 5).
		Device("ada", "d1", shop.PublicIdentity).MarkRevoked("d1", false).Consent("ada", "shop").Pause("bob", "shop").
		Roster("r", "ada", "bob").Revoke("eve", "shop").Marshal()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"sites":[],"consents":[],"devices":[]}`))
	f.Add([]byte(`{"sites":null}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := projection.Parse(raw)
		if err != nil {
			var e *projection.Error
			require.ErrorAs(t, err, &e)
			return
		}
		for _, owner := range []string{"ada", "bob", ""} {
			for _, r := range p.Routes(owner) {
				require.True(t, p.MayRoute(r))
				require.True(t, p.MayCarry(r, owner))
				require.True(t, p.Carries(r, owner))
				require.True(t, p.Stands(r.Site, owner), "each side consented")
			}
		}
		p.Revoked("d1")
	})
}
