package serve

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushrelay/store"
)

// storeCollector asks the store for its running totals when metrics are read.
type storeCollector struct {
	store store.Reader

	jobs, bytes, notices, sites, sessions *prometheus.Desc
}

func newStoreCollector(s store.Reader) *storeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("pushrelay_store_"+name, help, labels, nil)
	}
	return &storeCollector{
		store:    s,
		jobs:     desc("jobs", "Jobs in the store, by state; done ones until they are collected.", "state"),
		bytes:    desc("envelope_bytes", "Bytes of sealed envelopes in the store."),
		notices:  desc("notices", "Notices that no site has collected yet."),
		sites:    desc("sites", "Sites that have something in the store."),
		sessions: desc("sessions", "Sessions that the store knows of, of all replicas."),
	}
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.jobs, c.bytes, c.notices, c.sites, c.sessions} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A store that is out leaves its series out, which alerts can tell from zero.
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	stats, err := c.store.Stats(ctx)
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, state := range []store.State{store.Queued, store.AwaitingPayload, store.Ready, store.Running, store.Done} {
		gauge(c.jobs, float64(stats.ByState[state]), state.String())
	}
	gauge(c.bytes, float64(stats.Bytes))
	gauge(c.notices, float64(stats.Notices))
	gauge(c.sites, float64(stats.Sites))
	gauge(c.sessions, float64(stats.Sessions))
}
