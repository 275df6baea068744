// Package keys makes and reads the key files of sites and devices. A file holds private keys, so it is made for its
// owner alone and never overwritten.
package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire/seal"
)

// maxFileBytes bounds a key file; a larger one is surely another file.
const maxFileBytes = 64 << 10

// Keygen is `pushrelay keygen`.
type Keygen struct {
	Out  string `help:"File for the new private key; it must not exist yet. Default: standard output." type:"path" placeholder:"FILE" env:"-"`
	JSON bool   `help:"Print the key id and the public identity as one JSON object." name:"json" env:"-"`
}

// Help shows examples.
func (Keygen) Help() string {
	return `Examples:

  pushrelay keygen --out site.key
  pushrelay keygen --out device.key --json
  (umask 077; pushrelay keygen > device.key)

The file of --out can be read by its owner only and is never overwritten; a shell's > makes files that others can read, which are refused as keys, unless the umask forbids it. The public identity is what the control plane needs: it belongs in the projection, under "site" or "device". With --out it is printed to standard output; without, the private key is, and the public identity goes to standard error.`
}

// Run makes a key.
func (k Keygen) Run(s app.Streams) error {
	made, err := seal.Generate(nil)
	if err != nil {
		return err
	}
	public := s.Out
	if k.Out != "" {
		err = Write(k.Out, made)
	} else {
		public = s.Err
		err = printKey(s.Out, made)
	}
	if err != nil {
		return err
	}
	return k.describe(public, made)
}

func (k Keygen) describe(w io.Writer, made *seal.Keys) error {
	identity, err := json.Marshal(made.Public())
	if err != nil {
		return err
	}
	if k.JSON {
		_, err = fmt.Fprintf(w, "{\"keyId\":%q,\"identity\":%s}\n", made.KeyID(), identity)
		return err
	}
	_, err = fmt.Fprintf(w, "key id:          %s\npublic identity: %s\n", made.KeyID(), identity)
	return err
}

func printKey(w io.Writer, made *seal.Keys) error {
	raw, err := made.MarshalStored()
	if err != nil {
		return err
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// Write keeps keys in a new file for its owner only (mode 0600); an existing file is refused.
func Write(path string, made *seal.Keys) error {
	raw, err := made.MarshalStored()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return app.Usagef("%s is there already and may be a key in use; name another file, or remove it yourself", path)
	}
	if err != nil {
		return app.Usagef("the key can't be kept: %w", err)
	}
	_, err = file.Write(append(raw, '\n'))
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		err = errors.Join(fmt.Errorf("the key can't be kept: %w", err), os.Remove(path))
	}
	return err
}

// private refuses a file with a secret that others can read.
func private(file *os.File, path string) error {
	info, err := file.Stat()
	if err != nil {
		return app.Usagef("%s can't be read: %w", path, err)
	}
	if runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return app.Usagef("%s can be read by others (mode %04o); run `chmod 600 %s`, and replace what is in it if anybody else could have read it", path, info.Mode().Perm(), path)
	}
	return nil
}

// Read reads a key file that Write or another program of the protocol made. Errors never show its contents.
func Read(path string) (*seal.Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		advice := ""
		if errors.Is(err, os.ErrNotExist) {
			advice = "; make one with `pushrelay keygen --out FILE`"
		}
		return nil, app.Usagef("the key can't be read: %w%s", err, advice)
	}
	defer file.Close()
	if err := private(file, path); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	if err != nil {
		return nil, app.Usagef("the key can't be read: %w", err)
	}
	k, err := seal.ParseStoredKeys(raw)
	if err != nil {
		return nil, app.Usagef("%s holds no usable key; make one with `pushrelay keygen --out FILE`", path)
	}
	return k, nil
}
