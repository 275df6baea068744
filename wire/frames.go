package wire

import "github.com/go-json-experiment/json/jsontext"

// FrameType names what a frame of the push protocol is (design, section 5).
type FrameType string

// Frames of both roles.
const (
	TypeChallenge FrameType = "challenge" // relay to client, first
	TypeHello     FrameType = "hello"     // client to relay, the answer
	TypeWelcome   FrameType = "welcome"   // relay to client, authenticated
	TypeReply     FrameType = "reply"     // relay to client, a request's answer
	TypeError     FrameType = "error"     // relay to client, a request's refusal
	TypeCredit    FrameType = "credit"    // both ways, bulk may flow
	TypeGoaway    FrameType = "goaway"    // relay to client, dial again soon
)

// Frames of a daemon's session.
const (
	TypeReady     FrameType = "ready"     // request
	TypeAccept    FrameType = "accept"    // request
	TypeFetch     FrameType = "fetch"     // request
	TypeHeartbeat FrameType = "heartbeat" // request
	TypeResult    FrameType = "result"    // request
	TypeRelease   FrameType = "release"   // request
	TypeClaimed   FrameType = "claimed"   // push
	TypePayload   FrameType = "payload"   // push
	TypeCancel    FrameType = "cancel"    // push to a daemon; request of a site
	TypeLost      FrameType = "lost"      // push
	TypeSites     FrameType = "sites"     // push
	TypeRevoked   FrameType = "revoked"   // push
)

// Frames of a site's session; its cancel is TypeCancel.
const (
	TypeEnqueue     FrameType = "enqueue"      // request
	TypeSeal        FrameType = "seal"         // request
	TypeSealing     FrameType = "sealing"      // request
	TypeDecline     FrameType = "decline"      // request
	TypeCollected   FrameType = "collected"    // request
	TypeSealRequest FrameType = "seal-request" // push
	TypeResults     FrameType = "results"      // push
	TypeNotices     FrameType = "notices"      // push
	TypeRequeued    FrameType = "requeued"     // push
)

// Head is what every frame shares. ID is set on a client's requests only.
type Head struct {
	Type FrameType `json:"type"`
	ID   string    `json:"id,omitzero"`
}

// Grant names the right of one runner to one job: both ids, always (rule 5).
type Grant struct {
	JobID   string `json:"jobId"`
	LeaseID string `json:"leaseId"`
}

// Challenge opens the handshake. Nonce is 32 random bytes as base64url, good for this connection only.
type Challenge struct {
	Type       FrameType `json:"type"`
	Nonce      string    `json:"nonce"`
	ServerTime int64     `json:"serverTime"` // epoch ms
	Versions   []string  `json:"versions"`
}

// Hello answers the challenge. Body is a HelloBody as JSON text; Signature covers it exactly as it is written.
type Hello struct {
	Type      FrameType `json:"type"`
	Caller    string    `json:"caller"`   // runnerId or siteId
	IssuedAt  int64     `json:"issuedAt"` // epoch ms, the caller's clock; not judged, the nonce makes it fresh
	Signature string    `json:"signature"`
	Body      string    `json:"body"`
}

// HelloBody is what a hello signs. The fields from Capabilities on are a daemon's.
type HelloBody struct {
	ProtocolVersion string     `json:"protocolVersion"`
	Nonce           string     `json:"nonce"`
	Relay           string     `json:"relay"` // the URL that was dialled
	Role            string     `json:"role"`  // RoleDaemon or RoleSite
	Client          ClientInfo `json:"client"`

	Capabilities jsontext.Value `json:"capabilities,omitzero"` // list of Capability, in the hello's dialect
	Slots        int            `json:"slots,omitzero"`        // 1 to 64
	Paused       bool           `json:"paused,omitzero"`
	ActiveLeases []Grant        `json:"activeLeases,omitzero"` // every grant it works on or holds a result for
}

// Roles of a hello.
const (
	RoleDaemon = "daemon"
	RoleSite   = "site"
)

// ClientInfo says what program connects; for logs and the operator only. Each at most 64 bytes.
type ClientInfo struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Platform string `json:"platform,omitzero"`
}

// Welcome ends the handshake. The fields from Sites on are a daemon's.
type Welcome struct {
	Type          FrameType `json:"type"`
	SessionID     string    `json:"sessionId"`
	Epoch         string    `json:"epoch"`       // changes when the relay lost its memory
	ServerTime    int64     `json:"serverTime"`  // epoch ms
	SkewMs        int64     `json:"skewMs"`      // serverTime minus the hello's issuedAt
	LeaseMs       int64     `json:"leaseMs"`     // of a new or renewed lease
	HeartbeatMs   int64     `json:"heartbeatMs"` // at most a third of leaseMs
	PingMs        int64     `json:"pingMs"`      // silence of 60 s ends a session; a ping comes at least this often
	MaxFrameBytes int       `json:"maxFrameBytes"`
	RelayVersion  string    `json:"relayVersion"`

	Sites           map[string]PublicIdentity `json:"sites,omitzero"`
	Successions     map[string][]Succession   `json:"successions,omitzero"` // by the successor's key id, oldest link first
	AwaitingConsent []string                  `json:"awaitingConsent,omitzero"`
	Cancel          []Grant                   `json:"cancel,omitzero"`
	Lost            []Grant                   `json:"lost,omitzero"`
}

// Credit lets the peer send Bytes more of the bulk stream Stream.
type Credit struct {
	Type   FrameType `json:"type"`
	Stream uint32    `json:"stream"`
	Bytes  int       `json:"bytes"`
}

// Goaway asks the client to dial again after ReconnectAfterMs, or when the session closes. It stays until then.
type Goaway struct {
	Type             FrameType `json:"type"`
	Reason           string    `json:"reason"`
	ReconnectAfterMs int64     `json:"reconnectAfterMs"`
}

// Ready tells what a daemon can do now. Absolute: it replaces what was said before.
type Ready struct {
	Head
	Capabilities jsontext.Value `json:"capabilities"`
	Slots        int            `json:"slots"` // 1 to 64
	Paused       bool           `json:"paused"`
}

// Claimed offers jobs; each wants an accept or a release within 5 s. A job is its stub plus lease and maybe grant (see
// ClaimedJob.Append).
type Claimed struct {
	Type    FrameType        `json:"type"`
	Jobs    []jsontext.Value `json:"jobs"`
	LeaseMs int64            `json:"leaseMs"`
}

// ClaimLease is the lease member of a claimed job: the grant that is offered.
type ClaimLease struct {
	ID        string `json:"id"`
	RunnerID  string `json:"runnerId"`
	ExpiresAt int64  `json:"expiresAt"` // epoch ms
}

// Grants is the shape of accept, sealing, decline and collected.
type Grants struct {
	Head
	Grants []Grant `json:"grants"`
}

// AcceptReply names the grants that were gone already; the daemon doesn't run those.
type AcceptReply struct {
	Type FrameType `json:"type"`
	Re   string    `json:"re"`
	Lost []Grant   `json:"lost"`
}

// Payload pushes a sealed job. Large ones are built with AppendPayloadHead around the stored bytes.
type Payload struct {
	Type     FrameType      `json:"type"`
	JobID    string         `json:"jobId"`
	LeaseID  string         `json:"leaseId"`
	Envelope jsontext.Value `json:"envelope"`
}

// Fetch asks for the payload of one grant; refused as not-ready until it is sealed.
type Fetch struct {
	Head
	Grant Grant `json:"grant"`
}

// FetchReply carries the payload that a fetch asked for, as the site sent it.
type FetchReply struct {
	Type     FrameType      `json:"type"`
	Re       string         `json:"re"`
	Envelope jsontext.Value `json:"envelope"`
}

// GrantsPush is the shape of a daemon's cancel and lost pushes. Reason is set on lost.
type GrantsPush struct {
	Type   FrameType `json:"type"`
	Grants []Grant   `json:"grants"`
	Reason string    `json:"reason,omitzero"` // a LostReason
}

// Reasons of a lost push: the daemon stops and reports nothing.
const (
	LostUnaccepted = "unaccepted" // not accepted in time; nothing more comes until the daemon says ready
	LostLapsed     = "lapsed"     // the lease or the payload window ended
	LostDeadline   = "deadline"   // the job's deadline passed
	LostWithdrawn  = "withdrawn"  // consent or device revoked, or the site declined
	LostCancelled  = "cancelled"  // the site cancelled before there was work to stop
)

// Sites tells a daemon whom it serves. Absolute: it replaces what was said before.
type Sites struct {
	Type            FrameType                 `json:"type"`
	Sites           map[string]PublicIdentity `json:"sites"`
	Successions     map[string][]Succession   `json:"successions,omitzero"`
	AwaitingConsent []string                  `json:"awaitingConsent"`
}

// Bare is a frame that is its type alone: revoked.
type Bare struct {
	Type FrameType `json:"type"`
}

// Heartbeat renews what a daemon works on, every heartbeatMs while it holds leases.
type Heartbeat struct {
	Head
	ActiveLeases []Grant        `json:"activeLeases"`
	Capabilities jsontext.Value `json:"capabilities,omitzero"`
	Paused       *bool          `json:"paused,omitzero"`
}

// HeartbeatReply tells what of the named leases must stop, and the relay's time.
type HeartbeatReply struct {
	Type            FrameType `json:"type"`
	Re              string    `json:"re"`
	Cancel          []Grant   `json:"cancel"`
	Lost            []Grant   `json:"lost"`
	ServerTime      int64     `json:"serverTime"` // epoch ms
	AwaitingConsent []string  `json:"awaitingConsent"`
}

// Result reports a job's end. The daemon keeps it on disk until it is answered.
type Result struct {
	Head
	Grant       Grant          `json:"grant"`
	Envelope    jsontext.Value `json:"envelope"`
	Disposition string         `json:"disposition"` // ok, error or canceled
}

// ResultReply answers a result. Accepted false with Duplicate true: this grant's result was there already.
type ResultReply struct {
	Type      FrameType `json:"type"`
	Re        string    `json:"re"`
	Accepted  bool      `json:"accepted"`
	Duplicate bool      `json:"duplicate,omitzero"`
	State     string    `json:"state"`
}

// Release gives grants back, exactly these; it is also the only goodbye of a daemon.
type Release struct {
	Head
	Grants []Grant `json:"grants"`
	Reason string  `json:"reason"` // shutdown, pause, revoked, backend-down or refused
}

// ReleaseReply names the grants that were given back; others weren't held any more.
type ReleaseReply struct {
	Type     FrameType `json:"type"`
	Re       string    `json:"re"`
	Released []Grant   `json:"released"`
}

// Enqueue publishes 1 to 256 jobs; a known id answers its state and changes nothing.
type Enqueue struct {
	Head
	Stubs []jsontext.Value `json:"stubs"`
}

// EnqueueReply answers each stub of an enqueue in its order, with a state or an error.
type EnqueueReply struct {
	Type FrameType      `json:"type"`
	Re   string         `json:"re"`
	Jobs []EnqueueState `json:"jobs"`
}

// EnqueueState is one job's answer: a state, or an error with its message.
type EnqueueState struct {
	JobID      string `json:"jobId"`
	State      string `json:"state,omitzero"`
	Error      string `json:"error,omitzero"`
	Message    string `json:"message,omitzero"`
	ServerTime int64  `json:"serverTime,omitzero"` // with too-late, epoch ms
	RetryAfter int    `json:"retryAfter,omitzero"` // with rate-limited, seconds
}

// SealRequest asks a site to seal; for each job a device accepted and waits.
type SealRequest struct {
	Type FrameType `json:"type"`
	Jobs []SealJob `json:"jobs"`
}

// SealJob names the grant and the device to seal to.
type SealJob struct {
	JobID          string         `json:"jobId"`
	LeaseID        string         `json:"leaseId"`
	RunnerID       string         `json:"runnerId"`
	Device         PublicIdentity `json:"device"`
	AwaitingUntil  int64          `json:"awaitingUntil"`  // epoch ms, the payload window's end
	LeaseExpiresAt int64          `json:"leaseExpiresAt"` // epoch ms
}

// Seal hands over a sealed payload for one grant; a second one changes nothing.
type Seal struct {
	Head
	JobID    string         `json:"jobId"`
	LeaseID  string         `json:"leaseId"`
	Envelope jsontext.Value `json:"envelope"`
}

// StateReply answers a seal with the state that the job has now.
type StateReply struct {
	Type  FrameType `json:"type"`
	Re    string    `json:"re"`
	State string    `json:"state"`
}

// OKReply is the empty answer to a ready, sealing, decline or collected.
type OKReply struct {
	Type FrameType `json:"type"`
	Re   string    `json:"re"`
}

// Results pushes finished work; each grant is offered again until it is collected.
type Results struct {
	Type FrameType   `json:"type"`
	Jobs []ResultJob `json:"jobs"`
}

// ResultJob is one finished job: its sealed result, and who ran it on which device.
type ResultJob struct {
	JobID       string         `json:"jobId"`
	LeaseID     string         `json:"leaseId"`
	Envelope    jsontext.Value `json:"envelope"`
	Disposition string         `json:"disposition"`
	RunnerID    string         `json:"runnerId"`
	RunnerOwner string         `json:"runnerOwner"`
	Device      PublicIdentity `json:"device"`
}

// Notices is the shape of notices (dropped, until collected) and requeued (for information).
type Notices struct {
	Type FrameType `json:"type"`
	Jobs []Notice  `json:"jobs"`
}

// Notice says why a job is gone or moved. A notice is collected by its LeaseID, which is a fresh id made for the notice.
type Notice struct {
	JobID   string `json:"jobId"`
	LeaseID string `json:"leaseId,omitzero"`
	Why     string `json:"why"`
}

// CancelJobs asks to stop up to 256 jobs of the site; finished ones stay finished.
type CancelJobs struct {
	Head
	JobIDs []string `json:"jobIds"` // up to 256
}

// CancelReply answers in order: false when the relay knows no such job of the site.
type CancelReply struct {
	Type      FrameType `json:"type"`
	Re        string    `json:"re"`
	Cancelled []bool    `json:"cancelled"`
}

// Limits of the push protocol (design, section 5).
const (
	Subprotocol      = "byollm.push.v1"
	DaemonPath       = "/byollm/session"
	SitePath         = "/relay/site/session"
	EndpointDaemon   = "session"
	EndpointSite     = "site/session"
	MaxHelloBytes    = 16 << 10
	MaxTextBytes     = 32 << 10 // a longer frame travels in parts
	MaxPartBytes     = 32 << 10 // of a part, without its header
	PartHeaderBytes  = 5
	MaxFrameBytes    = 8 << 20
	MaxStreams       = 8         // open each way
	InitialCredit    = 64 << 10  // of each stream, bytes
	MaxCredit        = 512 << 10 // under way in one session, bytes
	MaxRequests      = 64        // unanswered
	MaxRequestBytes  = 16 << 20  // unanswered
	MaxRequestID     = 64        // bytes
	MaxList          = 256       // entries of one list in a request
	MaxSlots         = 64
	MaxEnvelopeBytes = 6 << 20
	MaxIDBytes       = 256
)

// Flags of a part's header, its fifth byte.
const (
	PartLast  = 1
	PartAbort = 2
	PartFirst = 4
)
