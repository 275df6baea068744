// Package app is what all commands of pushrelay share: one parser with one precedence (flags, then environment, then the
// configuration file), exit codes, logs and the text of errors.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// EnvPrefix begins the environment variable of each setting: --admin-listen is PUSHRELAY_ADMIN_LISTEN.
const EnvPrefix = "PUSHRELAY"

const description = `A relay between sites that publish jobs and daemons that run them. It carries sealed work that it can't open.

Every setting is a flag, an environment variable and a key of the JSON file that --config names; flags win over the environment, the environment over the file. In the file a key is the flag's name without the dashes.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 refused by the relay, 4 some jobs failed, 5 no job succeeded, 6 the store is in use, 7 the store is damaged or foreign, 8 the store has another format, 130 interrupted.`

// Streams are a command's input and output. Results go to Out; logs, progress and errors to Err.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Main parses args into commands, runs the one chosen and answers the exit code. Errors are printed to s.Err.
func Main(ctx context.Context, commands any, s Streams, args []string) int {
	helped := false
	parser, err := kong.New(commands,
		kong.Name("pushrelay"), kong.Description(description), kong.Writers(s.Out, s.Err),
		kong.NamedMapper("path", kong.MapperFunc(path)), kong.DefaultEnvars(EnvPrefix), kong.Resolvers(new(fileResolver)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.Exit(func(int) { helped = true }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(s))
	if err != nil {
		return report(s.Err, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(joined(parser.Model, args))
	if helped {
		return ExitOK
	}
	if err != nil {
		return report(s.Err, usage(err))
	}
	return report(s.Err, kctx.Run())
}

// path reads the name of a file and makes it absolute. An empty one stays empty: a setting that is set to nothing, as in an
// orchestrator's environment or in what --check-config printed, isn't the working folder.
func path(ctx *kong.DecodeContext, target reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("file", &name); err != nil {
		return err
	}
	if name != "" && name != "-" {
		name = kong.ExpandPath(name)
	}
	target.SetString(name)
	return nil
}

// usage gives a parser's error its exit code and the way to the command's help.
func usage(err error) error {
	var parse *kong.ParseError
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit // without the name of the flag that happened to be resolved first
	}
	command := "pushrelay"
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	return Usagef("%w; see `%s --help`", err, command)
}

func report(w io.Writer, err error) int {
	if err != nil && err.Error() != "" {
		fmt.Fprintln(w, "pushrelay: "+strings.TrimSpace(err.Error()))
	}
	return CodeOf(err)
}

// IsTerminal reports whether w is a terminal, where colours and progress are of use.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}
