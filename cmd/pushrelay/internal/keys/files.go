package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/wire"
)

// maxLineFileBytes bounds a file with a secret or a public key; a longer one is surely another file.
const maxLineFileBytes = 4096

// Line reads a file that holds a secret of one line, like an API key, and that nobody else can read; flag is the setting that names it, what says what it holds.
func Line(flag, path, what string) (string, error) {
	raw, err := readShort(path, private)
	var open *app.ExitError
	switch {
	case errors.As(err, &open):
		return "", app.Usagef("--%s: %w", flag, err)
	case err != nil:
		return "", app.Usagef("--%s can't be read: %w", flag, err)
	}
	line := strings.TrimSpace(string(raw))
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", app.Usagef("--%s %s must hold one line, %s", flag, path, what)
	}
	return line, nil
}

// readShort reads a small file that fit has nothing against.
func readShort(path string, fit func(*os.File, string) error) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := fit(f, path); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxLineFileBytes+1))
	if err == nil && len(raw) > maxLineFileBytes {
		err = fmt.Errorf("it has over %d bytes, so it is another file", maxLineFileBytes)
	}
	return raw, err
}

// ControlPlane reads the control plane's public key: the key itself, or the name of a file that holds it as text or as PEM.
func ControlPlane(keyOrFile string) (ed25519.PublicKey, error) {
	if key, err := wire.ParseControlPlaneKey(keyOrFile); err == nil {
		return key, nil
	}
	raw, err := readShort(keyOrFile, func(*os.File, string) error { return nil })
	if err != nil {
		return nil, app.Usagef("--control-plane-key is neither a key (43 characters of base64url) nor a file that can be read: %w", err)
	}
	if key, err := wire.ParseControlPlaneKey(strings.TrimSpace(string(raw))); err == nil {
		return key, nil
	}
	if block, rest := pem.Decode(raw); block != nil && len(bytes.TrimSpace(rest)) == 0 {
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if key, ok := parsed.(ed25519.PublicKey); ok && err == nil {
			return key, nil
		}
	}
	return nil, app.Usagef("--control-plane-key %s must hold a public Ed25519 key: its 32 bytes in base64url, or PEM with PUBLIC KEY", keyOrFile)
}
