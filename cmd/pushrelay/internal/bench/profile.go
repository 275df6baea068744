package bench

import (
	"errors"
	"os"
	"path/filepath"
)

// profiled measures with CPU profiles of the relay and of the clients under way, when the operator of the bench asked
// for them, and writes what both allocated.
func (o Output) profiled(relay *process, name string, measure func() error) error {
	if o.Profile == "" {
		return measure()
	}
	if err := os.MkdirAll(o.Profile, 0o700); err != nil {
		return err
	}
	dir, err := filepath.Abs(o.Profile)
	if err != nil {
		return err
	}
	at := func(who, what string) string { return filepath.Join(dir, name+"-"+who+"."+what) }
	if _, err := relay.ask("cpu " + at("relay", "cpu")); err != nil {
		return err
	}
	var clients controller
	if err := clients.startCPU(at("clients", "cpu")); err != nil {
		return err
	}
	err = errors.Join(measure(), clients.endCPU())
	_, ended := relay.ask("cpu-end")
	_, allocs := relay.ask("allocs " + at("relay", "allocs"))
	return errors.Join(err, ended, allocs, writeAllocs(at("clients", "allocs")))
}
