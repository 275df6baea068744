package serve

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/hub"
	"pushrelay/hub/grants"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/session/poll"
	"pushrelay/store"
	"pushrelay/wire"
)

// otherWord stands for every word outside the known ones, so that the number of series never depends on a client.
const otherWord = "other"

// metrics are the relay's own series in a registry of its own. Labels take words of closed sets only.
type metrics struct {
	registry *prometheus.Registry

	opened, ended, received, sent, unsent, refused *prometheus.CounterVec

	open                        *prometheus.GaugeVec
	duration                    *prometheus.HistogramVec
	work, grants, dropped, done *prometheus.CounterVec
	polled, asked               *prometheus.CounterVec
	waits                       *prometheus.GaugeVec
	polledBy                    map[[2]string]prometheus.Counter
	pollEndpoints               []string

	projections  *prometheus.CounterVec
	projectionAt prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pushrelay_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		opened:   counter("sessions_opened_total", "Sessions that were admitted.", "role"),
		ended:    counter("sessions_ended_total", "Connections that ended, by why.", "role", "reason"),
		received: counter("received_bytes_total", "Bytes received from sessions that ended.", "role"),
		sent:     counter("sent_bytes_total", "Bytes sent to sessions that ended.", "role"),
		unsent:   counter("unsent_bytes_total", "Bytes that were queued for a session when it ended.", "role"),
		refused:  counter("refused_total", "Upgrades and frames that were refused, by what they were.", "what"),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushrelay_sessions_open", Help: "Admitted sessions now.",
		}, []string{"role"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pushrelay_session_duration_seconds", Help: "How long admitted sessions lasted.",
			Buckets: []float64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600},
		}, []string{"role"}),
		work:    counter("hub_work_total", "What the hub did, by what it was.", "what"),
		grants:  counter("grants_ended_total", "Grants that ended without a result, by why; on every replica.", "why"),
		dropped: counter("jobs_dropped_total", "Jobs that were dropped, by why; on every replica.", "why"),
		done:    counter("results_total", "Results, by disposition; on every replica.", "disposition"),
		polled: counter("poll_requests_total", "Requests of clients that poll, by endpoint and outcome: ok, gone, or an error's code.",
			"endpoint", "outcome"),
		waits: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pushrelay_poll_held_requests", Help: "Polled requests that are held now.",
		}, []string{"endpoint"}),
		asked: counter("grant_questions_total", "Jobs that the control plane was asked about, by what came of it.", "outcome"),
		projections: counter("projection_replacements_total", "Projections that arrived, by where from and what came of it.",
			"source", "outcome"),
		projectionAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pushrelay_projection_applied_timestamp_seconds", Help: "When a projection was put in force last.",
		}),
	}
	build := app.BuildInfo()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "pushrelay_build_info", Help: "What this binary was made from; always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "go": build.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.opened, m.ended, m.received, m.sent, m.unsent, m.refused, m.open, m.duration, m.work, m.grants,
		m.dropped, m.done, m.polled, m.asked, m.waits, m.projections,
		m.projectionAt, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.prepare()
	return m
}

// prepare makes every series at once: a counter that appears with its first event hides that event from rates.
func (m *metrics) prepare() {
	for _, role := range roles() {
		m.opened.WithLabelValues(role)
		m.open.WithLabelValues(role)
		m.duration.WithLabelValues(role)
		for _, vec := range []*prometheus.CounterVec{m.received, m.sent, m.unsent} {
			vec.WithLabelValues(role)
		}
		for _, reason := range reasons() {
			m.ended.WithLabelValues(role, string(reason))
		}
	}
	for _, what := range refusals() {
		m.refused.WithLabelValues(what)
	}
	for _, c := range hub.Counters() {
		m.work.WithLabelValues(c.String())
	}
	for _, why := range hub.Whys() {
		m.grants.WithLabelValues(string(why))
		m.dropped.WithLabelValues(string(why))
	}
	for _, d := range dispositions() {
		m.done.WithLabelValues(d)
	}
	m.pollEndpoints = poll.Endpoints()
	m.polledBy = map[[2]string]prometheus.Counter{{otherWord, otherWord}: m.polled.WithLabelValues(otherWord, otherWord)}
	for _, endpoint := range m.pollEndpoints {
		m.waits.WithLabelValues(endpoint)
		for _, outcome := range poll.Outcomes() {
			m.polledBy[[2]string{endpoint, outcome}] = m.polled.WithLabelValues(endpoint, outcome)
		}
	}
	for _, o := range grants.Outcomes() {
		m.asked.WithLabelValues(o.String())
	}
	for _, source := range []string{sourceFile, sourceAdmin} {
		for _, outcome := range []string{"applied", "refused"} {
			m.projections.WithLabelValues(source, outcome)
		}
	}
}

func roles() []string { return []string{wire.RoleDaemon, wire.RoleSite} }

func reasons() []session.Reason {
	return []session.Reason{
		session.ReasonGoingAway, session.ReasonHandshakeTimeout, session.ReasonIdle, session.ReasonInternal,
		session.ReasonBusy, session.ReasonTooSlow, session.ReasonUnknown, session.ReasonFlooding, session.ReasonTooLarge,
		session.ReasonBadFrame, session.ReasonSuperseded, session.ReasonSignature, session.ReasonRevoked,
		session.ReasonVersion, session.ReasonPeer, session.ReasonCut,
	}
}

func refusals() []string {
	return []string{
		session.RefusedDraining, session.RefusedSessions, session.RefusedStrangers, session.RefusedAddr, session.RefusedRate,
		session.RefusedQuery, session.RefusedOrigin, session.RefusedSubprotocol, session.RefusedUpgrade, session.RefusedType,
	}
}

func known[T ~string](word T, words []T) string {
	if slices.Contains(words, word) {
		return string(word)
	}
	return otherWord
}

// Opened implements session.Observer.
func (m *metrics) Opened(role string) {
	role = known(role, roles())
	m.opened.WithLabelValues(role).Inc()
	m.open.WithLabelValues(role).Inc()
}

// Ended implements session.Observer.
func (m *metrics) Ended(role string, reason session.Reason, s session.Summary) {
	role = known(role, roles())
	m.ended.WithLabelValues(role, known(reason, reasons())).Inc()
	m.received.WithLabelValues(role).Add(float64(s.BytesIn))
	m.sent.WithLabelValues(role).Add(float64(s.BytesOut))
	m.unsent.WithLabelValues(role).Add(float64(s.Queued))
	if s.Admitted {
		m.open.WithLabelValues(role).Dec()
		m.duration.WithLabelValues(role).Observe(s.Duration.Seconds())
	}
}

// Refused implements session.Observer.
func (m *metrics) Refused(what string) { m.refused.WithLabelValues(known(what, refusals())).Inc() }

// Polled implements poll.Observer. Both words are of closed sets; one that this build doesn't know is counted as other.
func (m *metrics) Polled(endpoint, outcome string, _ time.Duration) {
	c, ok := m.polledBy[[2]string{endpoint, outcome}]
	if !ok {
		c = m.polledBy[[2]string{otherWord, otherWord}]
	}
	c.Inc()
}

// Waits implements poll.Observer.
func (m *metrics) Waits(endpoint string, change int) {
	m.waits.WithLabelValues(known(endpoint, m.pollEndpoints)).Add(float64(change))
}

func (m *metrics) granted(o grants.Outcome, jobs int) {
	m.asked.WithLabelValues(o.String()).Add(float64(jobs))
}

func (m *metrics) projection(source string, ok bool) {
	outcome := "refused"
	if ok {
		outcome = "applied"
		m.projectionAt.SetToCurrentTime()
	}
	m.projections.WithLabelValues(source, outcome).Inc()
}

// watch adds what is read from the parts when metrics are asked for.
func (m *metrics) watch(s store.Reader, budget *session.Budget, holder *projection.Holder) {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushrelay_" + name, Help: help}, value)
	}
	m.registry.MustRegister(newStoreCollector(s),
		gauge("budget_used_bytes", "Bytes of large frames held now.", func() float64 { return float64(budget.Used()) }),
		gauge("budget_bytes", "Bytes of large frames that may be held.", func() float64 { return float64(budget.Size()) }),
		gauge("projection_generation", "Rises with each projection that was put in force.", func() float64 {
			return float64(holder.Current().Generation)
		}),
		gauge("projection_sites", "Sites in the projection.", func() float64 {
			sites, _ := holder.Current().Size()
			return float64(sites)
		}),
		gauge("projection_devices", "Devices in the projection.", func() float64 {
			_, devices := holder.Current().Size()
			return float64(devices)
		}))
}

// hubMetrics hears the hub for metrics, whose own Ended is about sessions.
type hubMetrics struct{ *metrics }

// Count implements hub.Observer.
func (m hubMetrics) Count(c hub.Counter, n int) { m.work.WithLabelValues(c.String()).Add(float64(n)) }

// Ended implements hub.Observer.
func (m hubMetrics) Ended(why store.Why) { m.grants.WithLabelValues(known(why, hub.Whys())).Inc() }

// Dropped implements hub.Observer.
func (m hubMetrics) Dropped(why store.Why) { m.dropped.WithLabelValues(known(why, hub.Whys())).Inc() }

// Done implements hub.Observer.
func (m hubMetrics) Done(disposition string) {
	m.done.WithLabelValues(known(disposition, dispositions())).Inc()
}

func dispositions() []string {
	return []string{wire.DispositionOK, wire.DispositionError, wire.DispositionCanceled}
}
