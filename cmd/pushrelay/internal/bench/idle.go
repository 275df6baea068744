package bench

import "context"

// footprint is a child's resident memory without and with its connections, in bytes, each after a forced collection.
type footprint struct{ before, after int64 }

func (f footprint) each(n int) float64 { return float64(f.after-f.before) / float64(n) }

// bareIdle holds n bare connections to a child.
func bareIdle(ctx context.Context, exe string, n int) (f footprint, err error) {
	server, err := start(ctx, exe, "hold")
	if err != nil {
		return f, err
	}
	defer func() { _ = server.close() }()
	before, err := server.ask("memory")
	if err != nil {
		return f, err
	}
	conns, err := dialBare(ctx, server.Addr, n)
	defer closeBare(conns)
	if err != nil {
		return f, err
	}
	after, err := server.ask("memory")
	return footprint{before.Resident, after.Resident}, err
}
