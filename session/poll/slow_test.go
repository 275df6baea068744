package poll_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/internal/pipe"
	"pushrelay/session/poll"
)

// inBubble runs f in fake time, with a way to dial planes whose hub knows everybody and does nothing.
func inBubble(t *testing.T, f func(t *testing.T, dial func(ip byte) net.Conn, seen *tally)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		seen := &tally{n: map[[2]string]int{}, more: make(chan struct{})}
		planes, err := poll.New(poll.Options{Hub: idleHub{}, Budget: session.NewBudget(session.DefaultBudget), Observer: seen})
		require.NoError(t, err)
		l := pipe.New()
		srv := &http.Server{Handler: planes, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(l) }()
		f(t, func(ip byte) net.Conn {
			client, server := net.Pipe()
			require.NoError(t, l.Hand(t.Context(), server, ip))
			return client
		}, seen)
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
}

// A body that stops coming ends its request and its connection after 10 s; one that isn't framed as it says, at once. Both
// are told so, though net/http takes their clients for gone.
func TestBodiesThatNeverComeWhole(t *testing.T) {
	const head = "POST /byollm/release HTTP/1.1\r\nHost: relay\r\n"
	const slow, framing = "the body came too slowly", "the body isn't framed as its headers say"
	for name, tc := range map[string]struct {
		text, message string
		after         time.Duration
	}{
		"shorter than it says": {"Content-Length: 1000\r\n\r\n{", slow, 10 * time.Second},
		"nothing":              {"Content-Length: 1000\r\n\r\n", slow, 10 * time.Second},
		"longer than is free":  {"Content-Length: 60000\r\n\r\n{", slow, 10 * time.Second},
		"chunks that stop":     {"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", slow, 10 * time.Second},
		"a huge chunk":         {"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n{", slow, 10 * time.Second},
		"no chunk":             {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", framing, 0},
		"an endless extension": {"Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("a", 20_000), framing, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, dial func(ip byte) net.Conn, seen *tally) {
				conn := dial(1)
				defer conn.Close()
				began := time.Now()
				go func() { _, _ = io.WriteString(conn, head+tc.text) }() // the relay may stop reading
				reader := bufio.NewReader(conn)
				resp, err := http.ReadResponse(reader, nil)
				require.NoError(t, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Equal(t, tc.after, time.Since(began))
				assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
				assert.Equal(t, `{"error":"bad-request","message":"`+tc.message+`"}`, string(text))
				_, err = reader.ReadByte()
				assert.ErrorIs(t, err, io.EOF, "the connection isn't used again")
				synctest.Wait()
				assert.Equal(t, 1, seen.of("release", "bad-request"))
			})
		})
	}
}

// What a stranger goes on to send, or doesn't, isn't waited for, neither before the answer nor behind it.
func TestStrangersBodiesAreLeftAlone(t *testing.T) {
	for request, status := range map[string]int{
		"POST /byollm/release HTTP/1.1\r\nTransfer-Encoding: chunked\r\n": http.StatusUnauthorized,
		"POST /byollm/nothing HTTP/1.1\r\nTransfer-Encoding: chunked\r\n": http.StatusNotFound,
		"PUT /byollm/release HTTP/1.1\r\nContent-Length: 100000\r\n":      http.StatusMethodNotAllowed,
	} {
		t.Run(request, func(t *testing.T) {
			inBubble(t, func(t *testing.T, dial func(ip byte) net.Conn, _ *tally) {
				conn := dial(1)
				defer conn.Close()
				began := time.Now()
				go func() {
					_, _ = io.WriteString(conn, request+"Host: relay\r\n\r\n20000\r\n"+strings.Repeat(" ", 70_000))
				}()
				reader := bufio.NewReader(conn)
				resp, err := http.ReadResponse(reader, nil)
				require.NoError(t, err)
				assert.Equal(t, status, resp.StatusCode)
				_, err = io.Copy(io.Discard, reader)
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(began), 6*time.Second)
			})
		})
	}
}

// Whoever fills the room for bodies with promises doesn't keep a short request waiting.
func TestShortBodiesWaitForNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, dial func(ip byte) net.Conn, seen *tally) {
		for ip := range byte(4) { // each has a quarter of the room
			for range 128 {
				conn := dial(10 + ip)
				defer conn.Close()
				_, err := io.WriteString(conn, "POST /byollm/claim HTTP/1.1\r\nHost: relay\r\nContent-Length: 65536\r\n\r\n{")
				require.NoError(t, err)
			}
		}
		synctest.Wait()
		conn := dial(1)
		defer conn.Close()
		began := time.Now()
		body := strings.Repeat(" ", 4096-2) + "{}"
		_, err := io.WriteString(conn, "POST /byollm/heartbeat HTTP/1.1\r\nHost: relay\r\nContent-Length: 4096\r\n\r\n"+body)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
		assert.Zero(t, time.Since(began))
	})
}
