package endtoend

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// relay is a hub with its store, behind a listener.
type relay struct {
	url    string
	addr   string
	stop   func()
	store  *memory.Store
	hub    *hub.Hub
	server *session.Server
}

// relayOption changes how a relay is set up: its sessions, its listener, or both.
type relayOption func(cfg *session.ServerConfig, listener *net.Listener)

// startRelay listens on addr, or anywhere when it is empty.
func startRelay(t *testing.T, addr string, holder *projection.Holder, store *memory.Store, set hub.Settings, with ...relayOption) *relay {
	t.Helper()
	h, err := hub.New(hub.Config{Store: store, Projection: holder, Settings: set, Log: zerolog.Nop(), RelayVersion: "test"})
	require.NoError(t, err)
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	cfg := session.ServerConfig{Opener: h, Directory: h, PublicURLs: []string{url}, Version: "test", Log: zerolog.Nop()}
	for _, change := range with {
		change(&cfg, &listener)
	}
	srv, err := session.NewServer(cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(wire.DaemonPath, srv.Handler(wire.RoleDaemon))
	mux.Handle(wire.SitePath, srv.Handler(wire.RoleSite))
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: patience}}
	server.Start()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	r := &relay{url: url, addr: strings.TrimPrefix(url, "http://"), store: store, hub: h, server: srv}
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			server.Close()
			closing, done := context.WithTimeout(context.Background(), patience)
			defer done()
			require.NoError(t, srv.Close(closing))
			cancel()
			require.NoError(t, <-ended)
		})
	}
	t.Cleanup(r.stop)
	return r
}
