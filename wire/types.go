package wire

// Dialect is a protocolVersion. It decides a stub's vocabulary and nothing else (design, section 4).
type Dialect string

// The dialects that this build reads.
const (
	Dialect0 Dialect = "0" // audience self, named, public
	Dialect2 Dialect = "2" // audience private, team; optional purpose
)

// Stub is what the relay may know of a job. Raw is the exact text that the site wrote and is what daemons are shown.
type Stub struct {
	ID         string // 1 to 256 bytes, chosen by the site
	Kind       string // an open word
	Owner      string
	Site       string // key id of the key that signed
	Audience   string
	Purpose    string // version 2 only, may be empty
	SizeClass  string // small, medium, large or unbounded
	Streaming  bool
	DeadlineAt int64 // epoch ms
	Raw        []byte
}

// Private reports whether only the owner's own devices may run the job: audience self or private.
func (s *Stub) Private() bool { return s.Audience == "self" || s.Audience == "private" }

// Direction says which way an envelope travels: a payload to the daemon, a result to the site.
type Direction string

// Directions of an envelope.
const (
	DirectionPayload Direction = "payload"
	DirectionResult  Direction = "result"
)

// Envelope is the outside of a sealed message. Nothing here can open it (rule 1). Raw is its exact text.
type Envelope struct {
	RecipientKeyID string
	SenderKeyID    string
	Direction      Direction
	DeadlineAt     int64 // epoch ms
	Raw            []byte
}

// Dispositions that a result declares in the clear.
const (
	DispositionOK       = "ok"
	DispositionError    = "error"
	DispositionCanceled = "canceled"
)

// Reasons of a daemon's release.
const (
	ReleaseShutdown    = "shutdown"
	ReleasePause       = "pause"
	ReleaseRevoked     = "revoked"
	ReleaseBackendDown = "backend-down"
	ReleaseRefused     = "refused"
)

// PublicIdentity is what the other side may know of a party; verify it on every receipt. Base64url without padding.
type PublicIdentity struct {
	Identity      string `json:"identity"`      // raw Ed25519 key
	Encryption    string `json:"encryption"`    // raw X25519 key
	EncryptionSig string `json:"encryptionSig"` // by Identity over the encryption key's text
}

// Succession is one predecessor's signed link to the key that follows it.
type Succession struct {
	Identity  PublicIdentity `json:"identity"`
	Signature string         `json:"signature"`
}

// Capability is one thing that a daemon can run. Service is version 2's.
type Capability struct {
	Kind         string
	BackendID    string
	BackendClass string
	Service      string
	Model        string
	OfferScope   string
}
