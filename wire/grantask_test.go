package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/wire"
)

func grantRunners(t testing.TB) []*wire.GrantRunner {
	t.Helper()
	s, err := wire.ParseStub(wire.Dialect2, []byte(stub2))
	require.NoError(t, err)
	caps := []wire.Capability{{Kind: "llm.generate", Service: odd, BackendID: "b", BackendClass: "http", Model: "m", OfferScope: "team"}}
	return []*wire.GrantRunner{
		{RunnerID: odd, Owner: "bob", KeyID: "BYOLLM-D", Capabilities: caps, Jobs: []wire.GrantJob{
			{LeaseID: odd, SiteID: odd, Stub: &s}, {LeaseID: "l2", SiteID: "site", Stub: &s},
		}},
		{RunnerID: "r2", Owner: "carol", KeyID: "BYOLLM-E", Capabilities: caps, Jobs: []wire.GrantJob{{LeaseID: "l3", SiteID: "site", Stub: &s}}},
	}
}

func TestGrantRequestReadsBack(t *testing.T) {
	runners := grantRunners(t)
	back, err := wire.ParseGrantRequest(wire.AppendGrantRequest(nil, runners))
	require.NoError(t, err)
	assert.Equal(t, runners, back)
	empty, err := wire.ParseGrantRequest(wire.AppendGrantRequest(nil, nil))
	require.NoError(t, err)
	assert.Empty(t, empty)
	var many []*wire.GrantRunner
	for range wire.MaxGrantJobs/2 + 1 {
		r := *runners[0]
		many = append(many, &r)
	}
	_, err = wire.ParseGrantRequest(wire.AppendGrantRequest(nil, many))
	refused(t, err)
}

func TestGrantAnswersReadBack(t *testing.T) {
	g, _ := signedGrant(t, nil)
	answers := []wire.GrantAnswer{
		{LeaseID: odd, Grant: &g}, {LeaseID: "l2", Decline: wire.DeclinePermanent}, {LeaseID: "l3", Decline: wire.DeclineTemporary},
	}
	back, err := wire.ParseGrantAnswers(wire.AppendGrantAnswers(nil, answers))
	require.NoError(t, err)
	assert.Equal(t, answers, back)
}

func TestGrantAnswersAreStrict(t *testing.T) {
	g, _ := signedGrant(t, nil)
	grant := string(wire.AppendSignedGrant(nil, &g))
	for name, raw := range map[string]string{
		"nothing":            ``,
		"HTML":               `<html>secret</html>`,
		"a list":             `[]`,
		"no answers":         `{}`,
		"null answers":       `{"answers":null}`,
		"an unknown member":  `{"answers":[],"secret":1}`,
		"a null answer":      `{"answers":[null]}`,
		"neither":            `{"answers":[{"leaseId":"l"}]}`,
		"both":               `{"answers":[{"leaseId":"l","decline":"permanent","grant":` + grant + `}]}`,
		"both, one unread":   `{"answers":[{"leaseId":"l","decline":"permanent","grant":{}}]}`,
		"another word":       `{"answers":[{"leaseId":"l","decline":"secret"}]}`,
		"no lease":           `{"answers":[{"decline":"permanent"}]}`,
		"a member too many":  `{"answers":[{"leaseId":"l","decline":"permanent","why":"secret"}]}`,
		"a lease twice":      `{"answers":[{"leaseId":"l","decline":"permanent"},{"leaseId":"l","decline":"temporary"}]}`,
		"over 64":            `{"answers":[` + strings.Repeat(`{"leaseId":"l","decline":"permanent"},`, 64) + `{"leaseId":"m","decline":"permanent"}]}`,
		"something follows":  `{"answers":[]}{}`,
		"a member twice":     `{"answers":[],"answers":[]}`,
		"cut in the middle":  `{"answers":[{"leaseId":"l","grant":` + grant[:40],
		"UTF-8 that's wrong": "{\"answers\":[{\"leaseId\":\"l\xff\",\"decline\":\"permanent\"}]}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.ParseGrantAnswers([]byte(raw))
			refused(t, err)
		})
	}
	for name, bad := range map[string]string{
		"empty": `{}`, "null": `null`, "text": `"secret"`, "one member less": strings.Replace(grant, `"owner":"bob",`, ``, 1),
		"one more": strings.Replace(grant, `{`, `{"secret":1,`, 1),
	} {
		t.Run("only a grant is "+name, func(t *testing.T) {
			back, err := wire.ParseGrantAnswers([]byte(`{"answers":[{"leaseId":"l","grant":` + bad + `},{"leaseId":"m","decline":"permanent"}]}`))
			require.NoError(t, err)
			require.Len(t, back, 2)
			refused(t, back[0].Err)
			assert.Nil(t, back[0].Grant)
			assert.Equal(t, wire.GrantAnswer{LeaseID: "m", Decline: wire.DeclinePermanent}, back[1])
		})
	}
}

func FuzzParseGrantAnswers(f *testing.F) {
	g, _ := signedGrant(f, nil)
	f.Add(wire.AppendGrantAnswers(nil, []wire.GrantAnswer{{LeaseID: odd, Grant: &g}, {LeaseID: "l2", Decline: wire.DeclinePermanent}}))
	f.Add([]byte(`{"answers":[{"leaseId":"l","grant":{}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		answers, err := wire.ParseGrantAnswers(raw)
		if err != nil {
			return
		}
		kept := answers[:0:0]
		for _, a := range answers {
			n := 0
			for _, set := range []bool{a.Grant != nil, a.Decline != "", a.Err != nil} {
				if set {
					n++
				}
			}
			require.Equal(t, 1, n)
			if a.Err == nil {
				kept = append(kept, a)
			}
		}
		again, err := wire.ParseGrantAnswers(wire.AppendGrantAnswers(nil, kept))
		require.NoError(t, err)
		assert.ElementsMatch(t, kept, again)
	})
}

func FuzzParseGrantRequest(f *testing.F) {
	f.Add(wire.AppendGrantRequest(nil, grantRunners(f)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		runners, err := wire.ParseGrantRequest(raw)
		if err != nil {
			return
		}
		again, err := wire.ParseGrantRequest(wire.AppendGrantRequest(nil, runners))
		require.NoError(t, err)
		assert.Equal(t, runners, again)
	})
}
