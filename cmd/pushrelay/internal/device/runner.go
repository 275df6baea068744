package device

import (
	"strings"

	"pushrelay/cmd/pushrelay/internal/keys"
	"pushrelay/session/daemon"
	"pushrelay/wire"
)

// Shell answers the command line that runs cmd the way a terminal would.
func Shell(cmd string) []string { return []string{"/bin/sh", "-c", cmd} }

func (c *Command) runner() (daemon.Runner, error) {
	if c.Exec != "" {
		return &daemon.ExecRunner{Command: Shell(c.Exec), Model: c.model()}, nil
	}
	key := ""
	if c.OpenAIKey != "" {
		var err error
		if key, err = keys.Line("openai-key-file", c.OpenAIKey, "the API key"); err != nil {
			return nil, err
		}
	}
	return &daemon.OpenAIRunner{BaseURL: c.OpenAI, Model: c.Model, APIKey: key}, nil
}

// model is the name under which results say what ran.
func (c *Command) model() string {
	if c.Model != "" {
		return c.Model
	}
	if words := strings.Fields(c.Exec); len(words) > 0 {
		return words[0]
	}
	return "command"
}

// capabilities are what the relay may offer jobs by: one for each kind.
func (c *Command) capabilities() []wire.Capability {
	class, backend := "process", "exec"
	if c.OpenAI != "" {
		class, backend = "http", "openai"
	}
	scopes := wire.Dialect(c.Dialect).Audiences()
	scope := c.OfferScope
	if scope == "" {
		scope = scopes[len(scopes)-1]
	}
	service := c.Service
	if service == "" {
		service = backend
	}
	var caps []wire.Capability
	for _, kind := range c.Kind {
		caps = append(caps, wire.Capability{
			Kind: kind, BackendID: backend, BackendClass: class, Service: service, Model: c.model(), OfferScope: scope,
		})
	}
	return caps
}

func (c *Command) view() map[string]any {
	return map[string]any{
		"relay": c.Relay, "key": c.Key, "runner": c.Runner, "state": c.State, "ca": c.CA, "dialect": c.Dialect,
		"slots": c.Slots, "kind": c.Kind, "offer-scope": c.OfferScope, "owner": c.Owner, "control-plane-key": c.ControlPlane, "service": c.Service, "exec": c.Exec, "openai": c.OpenAI,
		"openai-key-file": c.OpenAIKey, "model": c.Model, "stop-within": c.StopWithin.String(),
	}
}
