package storetest

import (
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

// outcome is a call's whole answer as a caller sees it, without the ids that the caller named itself.
type outcome struct {
	code  store.Code
	state store.State
	n     int
	flag  bool
}

// told makes an outcome of an error and of how much a call answered.
func told(err error, n int, flag bool) outcome {
	o := outcome{n: n, flag: flag}
	if ref, ok := err.(*store.Refusal); ok {
		o.code, o.state = ref.Code, ref.State
	} else if err != nil {
		o.code = store.Code(err.Error())
	}
	return o
}

// runnerCalls are all calls by which a runner can ask about a grant. r3 never held anything.
var runnerCalls = map[string]func(r *rig, g wire.Grant) outcome{
	"Accept": func(r *rig, g wire.Grant) outcome {
		gs, err := r.st.Accept(r.ctx, r3, one(g))
		return told(err, len(gs), false)
	},
	"TakePayload": func(r *rig, g wire.Grant) outcome {
		env, err := r.st.TakePayload(r.ctx, r3, g)
		return told(err, len(env.Raw), false)
	},
	"Complete": func(r *rig, g wire.Grant) outcome {
		c, err := r.st.Complete(r.ctx, r3, g, resultFrom(r3, "x"), wire.DispositionOK)
		return told(err, int(c.State), c.Accepted || c.Duplicate)
	},
	"Release": func(r *rig, g wire.Grant) outcome {
		gs, err := r.st.Release(r.ctx, r3, one(g), wire.ReleaseRefused, time.Hour)
		return told(err, len(gs), false)
	},
	"Renew": func(r *rig, g wire.Grant) outcome {
		gs, err := r.st.Renew(r.ctx, r3, one(g), lease)
		return told(err, len(gs), false)
	},
	"Resume": func(r *rig, g wire.Grant) outcome {
		got, err := r.st.Resume(r.ctx, r3, r.attach(r3, "s"), one(g), lease)
		return told(err, 100*len(got.Kept)+10*len(got.Lost)+len(got.Returned), false)
	},
}

// siteCalls are all calls by which a site can ask about a job or a grant. siteB never published anything.
var siteCalls = map[string]func(r *rig, g wire.Grant) outcome{
	"Seal": func(r *rig, g wire.Grant) outcome {
		s, err := r.st.Seal(r.ctx, siteB, g, payloadFor(r1, "x"))
		return told(err, int(s), false)
	},
	"Seal without a lease": func(r *rig, g wire.Grant) outcome {
		s, err := r.st.Seal(r.ctx, siteB, wire.Grant{JobID: g.JobID}, payloadFor(r1, "x"))
		return told(err, int(s), false)
	},
	"Sealing": func(r *rig, g wire.Grant) outcome {
		gs, err := r.st.Sealing(r.ctx, siteB, one(g))
		return told(err, len(gs), false)
	},
	"Decline": func(r *rig, g wire.Grant) outcome {
		gs, err := r.st.Decline(r.ctx, siteB, one(g))
		return told(err, len(gs), false)
	},
	"Cancel": func(r *rig, g wire.Grant) outcome {
		ok, err := r.st.Cancel(r.ctx, siteB, []string{g.JobID})
		return told(err, len(ok), ok[0])
	},
	"Collect": func(r *rig, g wire.Grant) outcome { return told(r.st.Collect(r.ctx, siteB, one(g)), 0, false) },
	"ResultEnvelope": func(r *rig, g wire.Grant) outcome {
		env, err := r.st.ResultEnvelope(r.ctx, siteB, g)
		return told(err, len(env.Raw), false)
	},
	"Job": func(r *rig, g wire.Grant) outcome {
		_, err := r.st.Job(r.ctx, siteB, g.JobID)
		return told(err, 0, false)
	},
}

var oracleClauses = []clause{
	{"a runner learns nothing of jobs that it never held", store.Settings{}, func(r *rig) {
		for _, l := range lives {
			l.make(r, l.name)
			before := r.job(siteA, l.name)
			for name, call := range runnerCalls {
				r.Equal(call(r, bogus("no such job")), call(r, bogus(l.name)), "%s, %s", name, l.name)
				r.Equal(before, r.job(siteA, l.name), "%s, %s", name, l.name)
			}
			r.cancel(siteA, l.name)
		}
	}},
	{"not even with another's lease does a list call tell more", store.Settings{}, func(r *rig) {
		for _, l := range lives[1:6] {
			g := l.make(r, l.name)
			before := r.job(siteA, l.name)
			for _, name := range []string{"Accept", "Release", "Renew", "Resume"} {
				r.Equal(runnerCalls[name](r, bogus("no such job")), runnerCalls[name](r, g), "%s, %s", name, l.name)
				r.Equal(before, r.job(siteA, l.name), "%s, %s", name, l.name)
			}
		}
	}},
	{"a site learns nothing of others' jobs, lease ids in hand or not", store.Settings{}, func(r *rig) {
		for _, l := range lives {
			g := l.make(r, l.name)
			before := r.job(siteA, l.name)
			for name, call := range siteCalls {
				r.Equal(call(r, bogus("no such job")), call(r, g), "%s, %s", name, l.name)
				r.Equal(before, r.job(siteA, l.name), "%s, %s", name, l.name)
			}
			r.cancel(siteA, l.name)
		}
	}},
	{"a notice's id is no lease, not even for the runner that held the job", store.Settings{}, func(r *rig) {
		g := r.running("j")
		r.cancel(siteA, "j")
		r.release(r1, wire.ReleaseShutdown, 0, g)
		n := r.notices(siteA)["j"].Grant
		for _, runner := range []string{r1, r3} {
			r.takeErr(runner, n, store.ErrNotFound)
			r.completeErr(runner, n, store.ErrNotFound)
			r.Equal(one(n), r.renew(runner, n))
			r.Equal(one(n), r.accept(runner, n))
			r.Empty(r.release(runner, wire.ReleaseShutdown, 0, n))
		}
		_, err := r.st.ResultEnvelope(r.ctx, siteA, n)
		r.errIs(err, store.ErrNotFound)
	}},
	{"lists show nothing of others", store.Settings{}, func(r *rig) {
		r.oneOfEach("")
		r.running("running")
		r.Empty(r.cancelRequests(r3))
		held, err := r.st.Held(r.ctx, r3)
		r.NoError(err)
		r.Empty(held)
		r.Empty(r.pages(r.st.Jobs, siteB, 10))
		r.Empty(r.pages(r.st.Awaiting, siteB, 10))
		r.Empty(r.pages(r.st.Finished, siteB, 10))
		r.Empty(r.backlog(siteB))
	}},
	{"a foreign site's publishing under the same id learns nothing", store.Settings{}, func(r *rig) {
		r.running("j")
		got := r.enqueueAll(siteB, r.stub("j"))
		r.Equal([]store.Enqueued{{JobID: "j", State: store.Queued}}, got)
	}},
}
