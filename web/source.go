package web

import (
	"context"
	"time"

	"pushrelay/hub"
)

// source is the relay as the page sees it: reads only.
type source interface {
	Now() time.Time
	Sites(ctx context.Context) ([]hub.SiteSummary, error)
	Site(ctx context.Context, id string) (hub.SiteDetail, error)
	Jobs(ctx context.Context, site string, after uint64, most int) (jobs []hub.JobView, next uint64, err error)
	Job(ctx context.Context, site, id string) (hub.JobView, bool, error)
	Explain(ctx context.Context, site string, jobs []hub.JobView) ([][]hub.Obstacle, error)
}

// hubSource is a running hub.
type hubSource struct {
	*hub.Hub
	*hub.Inspector
}
