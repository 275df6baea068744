package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValuesThatBeginWithADash(t *testing.T) {
	cases := []struct {
		name, args, want string
		errs             string
	}{
		{"a key", "--name -RDpYDEoFIr", "-RDpYDEoFIr 1s 1MiB 1 false []", ""},
		{"two dashes", "--name --RDpYDEoFIr", "--RDpYDEoFIr 1s 1MiB 1 false []", ""},
		{"as help begins", "--name -hRDpYDEo", "-hRDpYDEo 1s 1MiB 1 false []", ""},
		{"joined already", "--name=-RDp --loud", "-RDp 1s 1MiB 1 true []", ""},
		{"in a list", "--hosts -a,b --hosts -c", "built-in 1s 1MiB 1 false [-a b -c]", ""},
		{"after a switch", "--loud --name -x", "-x 1s 1MiB 1 true []", ""},
		{"a dash alone", "--name -", "- 1s 1MiB 1 false []", ""},
		{"a number", "--count -3", "built-in 1s 1MiB -3 false []", ""},
		{"no value", "--name --loud", "", "--name: expected string value"},
		{"no value, then one with its value", "--name --count=3", "", "--name: expected string value"},
		{"no value, then a short flag", "--name -h", "", "--name: expected string value"},
		{"no value at the end", "--name", "", "--name: expected string value"},
		{"an end of flags", "--name -- -x", "", "--name: expected string value"},
		{"no such flag", "--nme -x", "", "unknown flag --nme"},
		{"a switch takes none", "--loud -x", "", "unknown flag -x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, out, errOut := run(t, new(trial), append([]string{"go"}, strings.Fields(c.args)...)...)
			if out != c.want || !strings.Contains(errOut, c.errs) || (code == ExitOK) != (c.errs == "") {
				t.Errorf("code %d, %q, %s", code, out, errOut)
			}
		})
	}
}

func TestEmptyNamesOfFilesStayEmpty(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": "", "-": "-", "a/b": filepath.Join(here, "a", "b"), "/a/b": "/a/b"} {
		var c struct {
			Go fileCommand `cmd:""`
		}
		for name, args := range map[string][]string{"flag": {"go", "--file=" + given}, "environment": {"go"}} {
			if name == "environment" {
				t.Setenv("PUSHRELAY_FILE", given)
			}
			if code, out, errOut := run(t, &c, args...); code != ExitOK || out != want {
				t.Errorf("%s %q: code %d, %q, %s", name, given, code, out, errOut)
			}
		}
		if err := os.Unsetenv("PUSHRELAY_FILE"); err != nil {
			t.Fatal(err)
		}
	}
}

type fileCommand struct {
	File string `type:"path"`
}

func (c *fileCommand) Run(s Streams) error {
	_, err := fmt.Fprint(s.Out, c.File)
	return err
}
