package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// childEnd is how long a child may take to end after its stdin closed, before it is killed.
const childEnd = 10 * time.Second

// process is a child that this bench started and will end.
type process struct {
	Addr  string // host and port that it listens on
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// start runs this executable again as `bench child ARGS` and waits for its address. Its stderr is this process's,
// its environment too but for settings of a relay. The child ends with close, with ctx, and with this process.
func start(ctx context.Context, exe string, args ...string) (*process, error) {
	if exe == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		exe = own
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{"bench", "child"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, app.EnvPrefix+"_") })
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}
	a, err := p.read()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("child %q: %w", args, err), p.close())
	}
	p.Addr = a.Addr
	return p, nil
}

// ask sends one command and waits for its answer.
func (p *process) ask(command string) (answer, error) {
	if _, err := io.WriteString(p.stdin, command+"\n"); err != nil {
		return answer{}, err
	}
	return p.read()
}

func (p *process) read() (answer, error) {
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			return answer{}, err
		}
		text, ok := strings.CutPrefix(line, answerPrefix)
		if !ok {
			continue
		}
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return a, err
		}
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	}
}

// close ends the child by closing its stdin, and kills it when that takes too long.
func (p *process) close() error {
	_ = p.stdin.Close()
	kill := time.AfterFunc(childEnd, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_, _ = io.Copy(io.Discard, p.lines)
	return p.cmd.Wait()
}
