package wire

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a hello and of a heartbeat.
const (
	MaxActiveLeases    = 1024 // grants that one daemon may name
	MaxClientInfoBytes = 64   // each member of ClientInfo
)

// ParseHelloBody reads what a hello signs, the version first; else unsupported-protocol-version or bad-request. Nonce
// and relay are the caller's to compare.
func ParseHelloBody(raw []byte) (HelloBody, error) {
	if len(raw) > MaxHelloBytes {
		return HelloBody{}, BadRequest("the hello's body has over %d bytes", MaxHelloBytes)
	}
	d, err := declaredDialect(raw)
	if err != nil {
		return HelloBody{}, err
	}
	var b HelloBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return HelloBody{}, BadRequest("the hello's body is not what it promises")
	}
	if err := b.check(d); err != nil {
		return HelloBody{}, err
	}
	return b, nil
}

// declaredDialect reads protocolVersion alone, so that a client of another version learns so whatever else it sends.
func declaredDialect(raw []byte) (Dialect, error) {
	declared := ""
	err := eachMember("the hello's body", raw, func(name []byte, v jsontext.Value) error {
		if string(name) == "protocolVersion" {
			declared, _ = text(v)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return ParseDialect(declared)
}

func (b *HelloBody) check(d Dialect) error {
	if b.Nonce == "" || b.Relay == "" {
		return BadRequest("nonce and relay must be non-empty strings")
	}
	if err := b.Client.check(); err != nil {
		return err
	}
	if err := checkWord("role", b.Role, RoleDaemon, RoleSite); err != nil {
		return err
	}
	if b.Role == RoleSite {
		return nil
	}
	if err := checkSlots(b.Slots); err != nil {
		return err
	}
	if len(b.ActiveLeases) > MaxActiveLeases {
		return BadRequest("activeLeases has more than %d entries", MaxActiveLeases)
	}
	if err := checkEach(b.ActiveLeases); err != nil {
		return err
	}
	_, err := ParseCapabilities(d, b.Capabilities)
	return err
}

func (c ClientInfo) check() error {
	if c.Name == "" || c.Version == "" {
		return BadRequest("client must have a name and a version")
	}
	for _, s := range []string{c.Name, c.Version, c.Platform} {
		if len(s) > MaxClientInfoBytes || !utf8.ValidString(s) {
			return BadRequest("client's members have at most %d bytes each", MaxClientInfoBytes)
		}
	}
	return nil
}

// SameRelay reports whether the dialled URL has scheme, host and port of one of the relay's public ones; ws counts as
// http, wss as https.
func SameRelay(dialled string, public []string) bool {
	want, ok := origin(dialled)
	if !ok {
		return false
	}
	for _, p := range public {
		if have, ok := origin(p); ok && have == want {
			return true
		}
	}
	return false
}

type relayOrigin struct {
	secure     bool
	host, port string
}

func origin(raw string) (relayOrigin, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return relayOrigin{}, false
	}
	o := relayOrigin{host: strings.ToLower(u.Hostname()), port: u.Port()}
	switch u.Scheme {
	case "https", "wss":
		o.secure = true
		if o.port == "" {
			o.port = "443"
		}
	case "http", "ws":
		if o.port == "" {
			o.port = "80"
		}
	default:
		return relayOrigin{}, false
	}
	return o, true
}
