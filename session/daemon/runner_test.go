//go:build unix

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sh(script string) *ExecRunner { return &ExecRunner{Command: []string{"sh", "-c", script}} }

func generate(prompt string) Job {
	return Job{Grant: grant("a"), Kind: KindGenerate, Size: "small", Prompt: Prompt{Text: prompt}}
}

func TestExecAnswers(t *testing.T) {
	a, err := sh(`read line; echo "$PUSHRELAY_KIND $PUSHRELAY_JOB: $line"`).Run(t.Context(), generate("hello"))
	require.NoError(t, err)
	assert.Equal(t, "llm.generate a: hello", a.Text)
	assert.Equal(t, "process", a.Backend)
	a, err = sh(`echo ignored input`).Run(t.Context(), generate(strings.Repeat("x", 1<<20)))
	require.NoError(t, err, "a command needn't read its input")
	assert.Equal(t, "ignored input", a.Text)
}

func TestExecFailures(t *testing.T) {
	cases := map[string]struct {
		run  *ExecRunner
		want RunError
	}{
		"status":     {sh(`echo oops >&2; exit 3`), RunError{Code: "command-failed", Message: "exit status 3: oops"}},
		"temporary":  {sh(`exit 75`), RunError{Code: "command-failed", Message: "exit status 75", Retryable: true}},
		"too much":   {&ExecRunner{Command: []string{"sh", "-c", "yes"}, MaxOutput: 1000}, RunError{Code: "output-too-large", Message: "the command's answer is too large"}},
		"too long":   {&ExecRunner{Command: []string{"sleep", "60"}, Timeout: 20 * time.Millisecond}, RunError{Code: "timeout", Message: "the command took too long", Retryable: true}},
		"bad answer": {&ExecRunner{Command: []string{"true"}, Check: func(string) error { return errors.New("empty") }}, RunError{Code: "bad-answer", Message: "empty", Retryable: true}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := c.run.Run(t.Context(), generate("x"))
			var e *RunError
			require.ErrorAs(t, err, &e)
			e.Err = nil
			assert.Equal(t, c.want, *e)
		})
	}
	_, err := sh(`echo busy >&2; exit 75`).Run(t.Context(), generate("x"))
	require.ErrorIs(t, err, ErrUnavailable, "the job is given back")
	assert.Equal(t, "command-failed", why(err), "what the command wrote is no line of a log")
	_, err = (&ExecRunner{Command: []string{"/nonexistent/command"}}).Run(t.Context(), generate("x"))
	assert.ErrorIs(t, err, ErrUnavailable)
	_, err = (&ExecRunner{}).Run(t.Context(), generate("x"))
	assert.ErrorIs(t, err, ErrUnavailable)
}

func TestExecStderrTail(t *testing.T) {
	_, err := sh(`i=0; while [ $i -lt 500 ]; do echo line $i >&2; i=$((i+1)); done; exit 1`).Run(t.Context(), generate("x"))
	var e *RunError
	require.ErrorAs(t, err, &e)
	assert.LessOrEqual(t, len(e.Message), stderrTail+100)
	assert.True(t, strings.HasSuffix(e.Message, "line 499"))
}

// TestExecCancelKillsTheTree starts children that ignore SIGTERM, and waits until none of them is left.
func TestExecCancelKillsTheTree(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	require.NoError(t, syscall.Mkfifo(pids, 0o600))
	r := sh(`trap '' TERM; (trap '' TERM; sleep 600) & echo $$ $! > "` + pids + `"; wait`)
	r.Grace = 50 * time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, generate("x"))
		done <- err
	}()
	raw, err := os.ReadFile(pids) // blocks until the command wrote it
	require.NoError(t, err)
	cancel(ErrCanceled)
	require.ErrorIs(t, <-done, ErrCanceled)
	for field := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !alive(pid) }, 5*time.Second, 5*time.Millisecond, "process %d is left", pid)
	}
}

// alive reports a process that isn't gone; one that waits for its new parent to reap it is gone.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	_, state, _ := bytes.Cut(raw, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

func TestExecLeavesNoChildBehind(t *testing.T) {
	r := sh(`sleep 600 >/dev/null 2>&1 & echo $!`)
	a, err := r.Run(t.Context(), generate("x"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(a.Text)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !alive(pid) }, 5*time.Second, 5*time.Millisecond)
}

func TestRender(t *testing.T) {
	for _, c := range []struct {
		job  Job
		want string
	}{
		{generate("p"), "p"},
		{Job{Kind: KindGenerate, Prompt: Prompt{System: "s", Text: "p"}}, "s\n\np"},
		{Job{Kind: KindChat, Prompt: Prompt{System: "s", Messages: []Message{{"user", "u"}, {"assistant", "a"}}}}, "[system]\ns\n\n[user]\nu\n\n[assistant]\na\n\n"},
		{Job{Kind: "other", Prompt: Prompt{Raw: []byte(`{"x":1}`)}}, `{"x":1}`},
	} {
		assert.Equal(t, c.want, string(Render(c.job)))
	}
}

// server answers every request with status and body and keeps what it was asked.
func server(t *testing.T, status int, body string) (*OpenAIRunner, *string) {
	t.Helper()
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(raw)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return &OpenAIRunner{BaseURL: s.URL, Model: "m", APIKey: "key", Client: s.Client()}, &asked
}

func TestOpenAIAnswers(t *testing.T) {
	r, asked := server(t, 200, `{"model":"m-1","choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"length"}]}`)
	a, err := r.Run(t.Context(), Job{Kind: KindGenerate, Prompt: Prompt{System: "s", Text: "a<b"}})
	require.NoError(t, err)
	assert.Equal(t, Answer{Text: "hi", Model: "m-1", Backend: "http", Stop: "length"}, a)
	assert.Equal(t, `POST /v1/chat/completions Bearer key {"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a<b"}],"stream":false}`, *asked)
	r.BaseURL += "/v1/"
	_, err = r.Run(t.Context(), Job{Kind: KindChat, Prompt: Prompt{Messages: []Message{{"user", "u"}}}})
	require.NoError(t, err)
	assert.Contains(t, *asked, `POST /v1/chat/completions `)
	_, err = r.Run(t.Context(), Job{Kind: "other"})
	assert.ErrorContains(t, err, "unsupported-kind")
}

func TestOpenAIFailures(t *testing.T) {
	for _, c := range []struct {
		status    int
		body      string
		code      string
		retryable bool
	}{
		{400, `{"error":{"message":"no such model"}}`, "backend-refused", false},
		{401, ``, "backend-refused", false},
		{302, ``, "backend-refused", false},
		{429, `x`, "backend-refused", true},
		{500, `x`, "backend-error", true},
		{503, `{"error":"loading"}`, "backend-error", true},
		{200, `x`, "backend-answer", true},
		{200, `{"choices":[]}`, "backend-answer", true},
		{200, `{"choices":[{"message":{"content":"` + strings.Repeat("x", 2000) + `"}}]}`, "output-too-large", false},
	} {
		r, _ := server(t, c.status, c.body)
		r.MaxOutput = 1000
		_, err := r.Run(t.Context(), generate("x"))
		var e *RunError
		require.ErrorAs(t, err, &e, "%d", c.status)
		assert.Equal(t, c.code, e.Code)
		assert.Equal(t, c.retryable, e.Retryable, "%d", c.status)
	}
}

func TestOpenAIUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = (&OpenAIRunner{BaseURL: "http://user:secret@" + l.Addr().String()}).Run(t.Context(), generate("x"))
	require.ErrorIs(t, err, ErrUnavailable)
	assert.NotContains(t, err.Error(), "secret")
}

func TestOpenAIStops(t *testing.T) {
	asked := make(chan struct{}, 2)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer s.Close()
	r := &OpenAIRunner{BaseURL: s.URL, Client: s.Client()}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(ErrCanceled)
	}()
	_, err := r.Run(ctx, generate("x"))
	require.ErrorIs(t, err, ErrCanceled)
	r.Timeout = 20 * time.Millisecond
	_, err = r.Run(t.Context(), generate("x"))
	var e *RunError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "timeout", e.Code)
}
