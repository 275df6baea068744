package app

import (
	"strings"

	"github.com/alecthomas/kong"
)

// joined puts values that begin with a dash together with their flags: one key in 64 begins with one, and the parser would
// take it for a flag. What is a flag of some command stays one, so a flag whose value was forgotten is told as before.
func joined(model *kong.Application, args []string) []string {
	flags := map[string]bool{} // whether it takes a value
	for _, leaf := range model.Leaves(false) {
		for _, group := range leaf.AllFlags(false) {
			for _, f := range group {
				flags["--"+f.Name] = !f.IsBool() && !f.IsCounter()
				if f.Short != 0 {
					flags["-"+string(f.Short)] = flags["--"+f.Name]
				}
			}
		}
	}
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if flags[args[i]] && i+1 < len(args) {
			value := args[i+1]
			name, _, _ := strings.Cut(value, "=")
			if _, flag := flags[name]; !flag && strings.HasPrefix(value, "-") && value != "--" && value != "-" {
				out = append(out, args[i]+"="+value)
				i++
				continue
			}
		}
		out = append(out, args[i])
	}
	return out
}
