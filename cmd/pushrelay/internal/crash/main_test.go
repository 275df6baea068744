// Package crash kills the real program while jobs go through it, and holds what is left against what was acknowledged.
//
//	world:   one relay after another on one folder and one address, two sites, three daemons, all over real sockets
//	ledger:  what the clients were told, and what must therefore be there after every crash
//	survey:  the folder as the dead process left it, opened as a copy and compared with the ledger
package crash

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// programVar names the program that TestMain built; tests read it.
const programVar = "PUSHRELAY_CRASH_PROGRAM"

// TestMain builds the program once, as its users do: without the race detector and without the tests' own code.
// Worlds run side by side: most of their time they wait for somebody to come back.
func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "pushrelay-crash-")
	if err == nil {
		err = errors.Join(flag.Set("test.parallel", "8"), build(filepath.Join(dir, "pushrelay")), os.Setenv(programVar, filepath.Join(dir, "pushrelay")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func build(to string) error {
	out, err := exec.Command("go", "build", "-o", to, "pushrelay/cmd/pushrelay").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the program can't be built: %w\n%s", err, out)
	}
	return nil
}
