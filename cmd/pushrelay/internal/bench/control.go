package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
)

// answerPrefix marks a child's answers on its stdout; whatever else it prints there is passed over.
const answerPrefix = "bench-child "

// answer is one line from a child.
type answer struct {
	Addr     string `json:"addr,omitzero"`
	Resident int64  `json:"resident,omitzero"` // bytes
	Heap     int64  `json:"heap,omitzero"`     // bytes of live objects
	Stacks   int64  `json:"stacks,omitzero"`   // bytes of stacks in use
	Routines int    `json:"routines,omitzero"`
	Spent    int64  `json:"spent,omitzero"` // ns of processor time since the start
	Error    string `json:"error,omitzero"`
}

// controller obeys a parent, one command a line: `memory`, `spent`, `cpu FILE`, `cpu-end`, `allocs FILE`.
type controller struct {
	out io.Writer
	cpu *os.File
}

// serve answers commands until in ends, which is how a parent ends its child, however the parent ended.
func (c *controller) serve(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		a, err := c.do(command, argument)
		if err != nil {
			a.Error = err.Error()
		}
		c.say(a)
	}
	_ = c.endCPU()
}

func (c *controller) say(a answer) {
	line, err := json.Marshal(a)
	if err == nil {
		fmt.Fprintf(c.out, "%s%s\n", answerPrefix, line)
	}
}

func (c *controller) do(command, argument string) (answer, error) {
	switch command {
	case "memory":
		return residentMemory()
	case "spent":
		return spent()
	case "cpu":
		return answer{}, c.startCPU(argument)
	case "cpu-end":
		return answer{}, c.endCPU()
	case "allocs":
		return answer{}, writeAllocs(argument)
	}
	return answer{}, errors.New("unknown command " + strconv.Quote(command))
}

// residentMemory answers the resident memory after a collection that hands free pages back. Pools empty in the second one.
func residentMemory() (answer, error) {
	for range 3 {
		debug.FreeOSMemory()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	a := answer{Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse), Routines: runtime.NumGoroutine()}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return a, fmt.Errorf("resident memory is read from /proc: %w", err)
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return a, errors.New("/proc/self/statm has no resident size")
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	a.Resident = pages * int64(os.Getpagesize())
	return a, err
}

func (c *controller) startCPU(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	c.cpu = f
	return nil
}

func (c *controller) endCPU() error {
	if c.cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := c.cpu.Close()
	c.cpu = nil
	return err
}

func writeAllocs(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
