package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"pushrelay/wire"
)

const (
	defaultMaxOutput = 3 << 20 // about what an envelope carries
	defaultGrace     = 2 * time.Second
	stderrTail       = 2 << 10
	exitTempFail     = 75 // EX_TEMPFAIL of sysexits.h
)

var errTooMuch = errors.New("daemon: the command wrote too much")

// ExecRunner runs a command for each job: the rendered prompt on its standard input, the answer on its standard output.
//
// By default llm.generate is written as the system text, an empty line and the prompt; without a system text as the prompt
// alone. llm.chat is written as one block for each message, the system text first, each a line [system], [user] or
// [assistant], the content and an empty line. Other kinds get the payload's JSON as the site wrote it.
//
// The environment is the daemon's own plus Env, PUSHRELAY_JOB, PUSHRELAY_KIND and PUSHRELAY_SIZE. Exit status 0 is success;
// 75 gives the job back, as ErrUnavailable does; any other is a failure, and the end of what was written to standard error
// goes to the site. When a job is cancelled the whole process group gets SIGTERM and, after Grace, SIGKILL; nothing that it
// started is left.
type ExecRunner struct {
	Command   []string // program and arguments; no shell is involved
	Dir       string   // working directory; empty means the daemon's
	Env       []string // NAME=value, added
	Model     string   // reported as what ran; empty means the capability's
	MaxOutput int      // bytes of the answer; 0 means 3 MiB, more is an error
	Timeout   time.Duration
	Grace     time.Duration           // 0 means 2 s
	Render    func(job Job) []byte    // what is written to standard input; nil means as above
	Check     func(text string) error // judges an answer; nil means that every one is good
}

// Run starts the command, waits for it and answers what it wrote, less one final line break.
func (r *ExecRunner) Run(ctx context.Context, job Job) (Answer, error) {
	if len(r.Command) == 0 {
		return Answer{}, fmt.Errorf("%w: no command is configured", ErrUnavailable)
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	out := &bounded{most: orDefault(r.MaxOutput, defaultMaxOutput), over: cancel}
	errs := &tail{}
	cmd := r.command(ctx, job, out, errs)
	if err := cmd.Start(); err != nil {
		return Answer{}, fmt.Errorf("%w: the command can't be started: %w", ErrUnavailable, err)
	}
	err := cmd.Wait()
	killGroup(cmd) // whatever it left behind
	switch {
	case outer.Err() != nil:
		return Answer{}, context.Cause(outer)
	case out.full:
		return Answer{}, &RunError{Code: "output-too-large", Message: "the command's answer is too large", Err: errTooMuch}
	case ctx.Err() != nil:
		return Answer{}, &RunError{Code: "timeout", Message: "the command took too long", Retryable: true, Err: ctx.Err()}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return Answer{}, failure(err, errs)
	}
	text := strings.TrimSuffix(strings.ToValidUTF8(out.buf.String(), "\uFFFD"), "\n")
	if r.Check != nil {
		if err := r.Check(text); err != nil {
			return Answer{}, &RunError{Code: "bad-answer", Message: err.Error(), Retryable: true, Err: err}
		}
	}
	return Answer{Text: text, Model: r.Model, Backend: "process"}, nil
}

func (r *ExecRunner) command(ctx context.Context, job Job, out *bounded, errs *tail) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	render := r.Render
	if render == nil {
		render = Render
	}
	cmd.Stdin = bytes.NewReader(render(job))
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, errs, r.Dir
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Env = append(cmd.Env, "PUSHRELAY_JOB="+job.Grant.JobID, "PUSHRELAY_KIND="+job.Kind, "PUSHRELAY_SIZE="+job.Size)
	cmd.WaitDelay = r.Grace
	if cmd.WaitDelay <= 0 {
		cmd.WaitDelay = defaultGrace
	}
	ownGroup(cmd)
	return cmd
}

// failure tells the site how a command ended, with the end of its standard error.
func failure(err error, errs *tail) error {
	e := &RunError{Code: "command-failed", Message: err.Error(), Err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.Retryable = exit.ExitCode() == exitTempFail || exit.ExitCode() < 0 // or killed by a signal
		if exit.ExitCode() == exitTempFail {
			e.Err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if text := errs.text(); text != "" {
		e.Message += ": " + text
	}
	return e
}

// Render writes a job's prompt as text, as ExecRunner documents it.
func Render(job Job) []byte {
	var b bytes.Buffer
	switch job.Kind {
	case KindGenerate:
		if job.Prompt.System != "" {
			b.WriteString(job.Prompt.System + "\n\n")
		}
		b.WriteString(job.Prompt.Text)
	case KindChat:
		if job.Prompt.System != "" {
			b.WriteString("[system]\n" + job.Prompt.System + "\n\n")
		}
		for _, m := range job.Prompt.Messages {
			b.WriteString("[" + m.Role + "]\n" + m.Content + "\n\n")
		}
	default:
		return job.Prompt.Raw
	}
	return b.Bytes()
}

// bounded keeps what is written until it is too much; then it stops the command.
type bounded struct {
	buf  bytes.Buffer
	most int
	full bool
	over func()
}

// Write keeps p, or fails when that would be too much.
func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.most {
		b.full = true
		b.over()
		return 0, errTooMuch
	}
	return b.buf.Write(p)
}

// tail keeps the end of what is written.
type tail struct{ buf []byte }

// Write keeps the end of all that was written; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if n > stderrTail {
		p = p[n-stderrTail:]
	}
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - stderrTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return n, nil
}

func (t *tail) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.buf), "\uFFFD"))
}

func orDefault(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return min(n, wire.MaxEnvelopeBytes)
}
