package serve

import (
	"os"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/web"
)

// debugTokenVariable holds the token itself, where no file does.
const debugTokenVariable = app.EnvPrefix + "_DEBUG_TOKEN"

// debugPlace refuses a debug page that nothing could serve.
func (s *Settings) debugPlace() error {
	if s.Debug && s.AdminListen == adminOff {
		return app.Usagef("--debug needs the admin listener; remove --admin-listen off, or --debug")
	}
	return nil
}

// debugToken answers the token of the debug page.
func (s *Settings) debugToken() (string, error) {
	token, source := s.DebugToken, "the token"
	if token == "" {
		token, source = os.Getenv(debugTokenVariable), debugTokenVariable
		switch {
		case s.DebugTokenFile != "" && token != "":
			return "", app.Usagef("both --debug-token-file and %s hold a token; keep one of them", debugTokenVariable)
		case s.DebugTokenFile != "":
			var err error
			if token, err = keys.Line("debug-token-file", s.DebugTokenFile, "the token"); err != nil {
				return "", err
			}
			source = s.DebugTokenFile
		case token == "":
			return "", app.Usagef("--debug needs a token that operators enter: put one into a file that only you can read (umask 077; openssl rand -hex 24 > debug.token) and name it with --debug-token-file, or set %s", debugTokenVariable)
		}
	}
	if err := web.CheckToken(token); err != nil {
		return "", app.Usagef("%s holds no usable token: %w; `openssl rand -hex 24` makes one", source, err)
	}
	return token, nil
}

// debugPage makes the page when it is asked for.
func (r *Relay) debugPage() error {
	if !r.set.Debug {
		return nil
	}
	token, err := r.set.debugToken()
	if err != nil {
		return err
	}
	r.page, err = web.New(web.Config{
		Token: token, Hub: r.hub, Version: app.BuildInfo().Version, Host: r.set.debugHost, Log: r.log,
	})
	return err
}

// debugHost reports whether requests for the page may name a host.
func (s *Settings) debugHost(host string) bool {
	return loopbackHost(host) || readable(host, s.AdminHost, s.AdminRemote)
}

// DebugURL answers where the debug page is, or "".
func (r *Relay) DebugURL() string {
	if r.page == nil {
		return ""
	}
	return r.AdminURL() + web.Prefix + "/"
}
