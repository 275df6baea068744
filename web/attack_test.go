package web

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// raw opens a stream by hand, so that bytes may be sent which no library sends.
func (f *fixture) raw(cookie *http.Cookie) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	host := strings.TrimPrefix(f.http.URL, "http://")
	c, err := net.Dial("tcp", host)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	require.NoError(f.t, c.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(c, "GET %s/stream?site=shop HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nCookie: %s=%s\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		Prefix, host, f.http.URL, cookie.Name, cookie.Value)
	require.NoError(f.t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(f.t, err)
	require.Equal(f.t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c, r
}

// empty checks that nothing is left of viewers.
func (f *fixture) empty() {
	f.t.Helper()
	d := f.page.desk
	left := func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		f.page.rec.mu.Lock()
		defer f.page.rec.mu.Unlock()
		if d.viewers == 0 && len(d.open) == 0 && len(f.page.rec.boards) == 0 && d.all.left.Load() == maxRows {
			return ""
		}
		return fmt.Sprintf("%d viewers, %d feeds, %d boards, %d rows", d.viewers, len(d.open), len(f.page.rec.boards), maxRows-d.all.left.Load())
	}
	require.Eventually(f.t, func() bool { return left() == "" }, patience, 5*time.Millisecond, "left: %s", left())
}

func TestGarbageOnAStream(t *testing.T) {
	length := func(n uint64) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, n), 1, 2, 3, 4)
	}
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	f := newFixture(t, nil)
	cookie := f.cookie()
	for name, sent := range map[string][]byte{
		"not masked":          {0x81, 2, '{', '}'},
		"reserved bits":       {0xf1, 0x80, 1, 2, 3, 4},
		"an unknown opcode":   {0x83, 0x80, 1, 2, 3, 4},
		"a frame of 8 EiB":    length(1 << 63),
		"a frame of 1 GiB":    append(length(1<<30), noise...),
		"a long ping":         {0x89, 0x80 | 126, 0, 200, 1, 2, 3, 4},
		"a ping in parts":     {0x09, 0x80, 1, 2, 3, 4},
		"the middle of one":   {0x80, 0x80, 1, 2, 3, 4},
		"a close with a byte": {0x88, 0x81, 1, 2, 3, 4, 5},
		"noise":               noise,
		"HTTP":                []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c, r := f.raw(cookie)
			defer func() { _ = c.Close() }()
			_, _ = c.Write(sent)             // all of it, or until it is cut
			_, err := io.Copy(io.Discard, r) // whatever is said before
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "nobody ends it")
		})
	}
	f.empty()
	e := f.see("shop", cookie)
	e.say(`{"rows":1}`)
	e.until("others aren't harmed", func(u shown) bool { return u.Rows != nil })
}

// Texts of messages that are JSON, and bad.
func TestHostileLooks(t *testing.T) {
	f := newFixture(t, nil)
	f.enqueue("j")
	e := f.see("shop", f.cookie())
	for _, look := range []string{
		`{"rows":1e3}`, `{"from":9223372036854775807,"rows":200}`, `{"from":-9223372036854775808,"rows":-1}`,
		`{"rows":9223372036854775807,"text":"\u0000\ud800"}`, `{"rows":1,"states":["queued","queued","__proto__",""]}`,
		`{"rows":1,"job":"` + strings.Repeat("x", 300) + `"}`, `{"rows":1,"job":"../j"}`, `{"rows":1,"unknown":{"a":[[[[]]]]}}`,
	} {
		if l, err := parseLook([]byte(look)); err != nil {
			continue // it would end the stream, as garbage does
		} else if l.Rows < 0 || l.From < 0 {
			t.Error(look)
		}
		e.say(look)
	}
	e.say(`{"rows":5}`)
	e.until("it goes on", showsJob("j", "queued"))
}

// More pages than there is room for are told so, and room comes back.
func TestAThousandStreams(t *testing.T) {
	f := newFixture(t, nil)
	cookie := f.cookie()
	header := http.Header{"Origin": {f.http.URL}, "Cookie": {cookie.Name + "=" + cookie.Value}}
	url := strings.Replace(f.http.URL, "http:", "ws:", 1) + Prefix + "/stream?site="
	var mu sync.Mutex
	var open []*websocket.Conn
	codes := map[int]int{}
	var all sync.WaitGroup
	turns := make(chan struct{}, 50)
	for i := range 1000 {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			c, resp, err := websocket.Dial(ctx, url+fmt.Sprint("site-", i%20), &websocket.DialOptions{HTTPHeader: header})
			mu.Lock()
			defer mu.Unlock()
			if resp != nil {
				codes[resp.StatusCode]++
			}
			if err == nil {
				open = append(open, c)
			}
		})
	}
	all.Wait()
	require.Equal(t, map[int]int{http.StatusSwitchingProtocols: maxViewers, http.StatusServiceUnavailable: 1000 - maxViewers}, codes)
	f.page.desk.mu.Lock()
	require.LessOrEqual(t, len(f.page.desk.open), maxBoards)
	f.page.desk.mu.Unlock()
	for _, c := range open {
		_ = c.CloseNow()
	}
	f.empty()
	e := f.see("shop", cookie)
	e.say(`{"rows":1}`)
	e.until("room again", func(u shown) bool { return u.Rows != nil })
}

// Viewers come, look at this and that, and go at any moment, while jobs move.
func TestViewersComeAndGo(t *testing.T) {
	f := newFixture(t, nil)
	cookie := f.cookie()
	header := http.Header{"Origin": {f.http.URL}, "Cookie": {cookie.Name + "=" + cookie.Value}}
	url := strings.Replace(f.http.URL, "http:", "ws:", 1) + Prefix + "/stream"
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(w)))
			for range 25 {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				c, _, err := websocket.Dial(ctx, url+[]string{"", "?site=shop", "?site=none"}[rnd.IntN(3)], &websocket.DialOptions{HTTPHeader: header})
				if err == nil {
					for range rnd.IntN(4) {
						_ = c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"rows":%d,"text":"%d","job":"j%d","hidden":%v}`,
							rnd.IntN(50), rnd.IntN(3), rnd.IntN(5), rnd.IntN(2) == 0))
						_, _, _ = c.Read(ctx)
					}
					if rnd.IntN(2) == 0 {
						_ = c.Close(websocket.StatusNormalClosure, "")
					}
					_ = c.CloseNow()
				} else {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	for i := range 50 {
		f.enqueue(fmt.Sprint("j", i))
	}
	all.Wait()
	f.empty()
}
