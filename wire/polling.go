package wire

import "github.com/go-json-experiment/json/jsontext"

// The bodies of the polling planes (design, section 8). Requests are closed shapes; answers are written with Encode.

// ClaimRequest asks for up to Max jobs, 1 to 64. Capabilities are sent with every claim.
type ClaimRequest struct {
	ProtocolVersion string
	RunnerID        string
	Capabilities    []Capability
	Max             int
}

// ClaimResponse answers a claim; LeaseMs is the leases' length. A job is a stub with its lease.
type ClaimResponse struct {
	Jobs    []jsontext.Value `json:"jobs"`
	LeaseMs int64            `json:"leaseMs"`
}

// FetchRequest asks for the payload of one grant; it may be held until the site seals.
type FetchRequest struct {
	ProtocolVersion string
	RunnerID        string
	Grant           Grant
}

// FetchResponse carries the sealed payload as the site sent it.
type FetchResponse struct {
	Envelope jsontext.Value `json:"envelope"`
}

// HeartbeatRequest renews what a polling daemon works on. Paused is dialect 0's, withheld kinds are checked and dropped.
type HeartbeatRequest struct {
	ProtocolVersion string
	RunnerID        string
	DaemonVersion   string
	Capabilities    []Capability
	ActiveLeases    []Grant
	Paused          bool
}

// HeartbeatResponse answers a heartbeat. All but Successions and UpdateTo are always present; ServerTime is epoch ms.
type HeartbeatResponse struct {
	Sites           map[string]PublicIdentity `json:"sites"`
	Successions     map[string]SuccessionLine `json:"successions,omitzero"` // not in dialect 0; by key id
	Cancel          []Grant                   `json:"cancel"`
	Lost            []Grant                   `json:"lost"`
	ServerTime      int64                     `json:"serverTime"`
	AwaitingConsent []string                  `json:"awaitingConsent"`
	UpdateTo        string                    `json:"updateTo,omitzero"` // not in dialect 0; never sent by this relay
}

// SuccessionLine is how a site's key came to be: at most 64 links; RetiringUntil is epoch ms, zero when unset.
type SuccessionLine struct {
	Succeeds      []Succession `json:"succeeds"`
	RetiringUntil int64        `json:"retiringUntil,omitzero"`
}

// ResultRequest reports a job's end with its sealed result, whose bytes alias the body.
type ResultRequest struct {
	ProtocolVersion string
	RunnerID        string
	Grant           Grant
	Envelope        Envelope
	Disposition     string
}

// ResultResponse answers a result; Accepted false with Duplicate true means that it was there already.
type ResultResponse struct {
	Accepted  bool   `json:"accepted"`
	Duplicate bool   `json:"duplicate,omitzero"`
	State     string `json:"state"`
}

// ReleaseRequest gives grants back; Reason is one of the Release words.
type ReleaseRequest struct {
	ProtocolVersion string
	RunnerID        string
	Leases          []Grant
	Reason          string
}

// ReleaseResponse lists the ids of the jobs that were given back, never null.
type ReleaseResponse struct {
	Released []string `json:"released"`
}

// PairStartRequest asks for a pairing code. Label has 1 to 120 characters.
type PairStartRequest struct {
	ProtocolVersion string
	Version         string
	Label           string
	Platform        string // darwin, linux or win32
	Device          PublicIdentity
	Capabilities    []Capability
}

// PairStartResponse shows the code that a person confirms; times are epoch ms and ms.
type PairStartResponse struct {
	DeviceCode      string `json:"deviceCode"` // 20 characters at least, secret
	UserCode        string `json:"userCode"`   // 4 to 16 characters
	VerificationURL string `json:"verificationUrl"`
	ExpiresAt       int64  `json:"expiresAt"`
	PollIntervalMs  int64  `json:"pollIntervalMs"` // 500 to 60,000
}

// PairPollRequest asks whether the code was approved; DeviceCode has 20 characters at least.
type PairPollRequest struct {
	ProtocolVersion string
	DeviceCode      string
}

// PairDirectRequest asks for what an approved code would be answered: for devices that were approved before, without a code.
type PairDirectRequest struct {
	ProtocolVersion string
	Owner           string
	Device          PublicIdentity
}

// PairRequest is one of the three forms of a pairing request; the others are nil.
type PairRequest struct {
	Start  *PairStartRequest
	Poll   *PairPollRequest
	Direct *PairDirectRequest
}

// PairPollResponse answers a poll: Status is pending, denied, expired or approved, the rest is for approved.
type PairPollResponse struct {
	Status     string                    `json:"status"`
	RunnerID   string                    `json:"runnerId,omitzero"`
	Owner      string                    `json:"owner,omitzero"`
	OwnerLabel string                    `json:"ownerLabel,omitzero"`
	Sites      map[string]PublicIdentity `json:"sites,omitzero"` // set but maybe empty when approved
	// ControlPlanePublic is the key that signs grants, raw Ed25519 in base64url; empty when there is none.
	ControlPlanePublic string `json:"controlPlanePublic,omitzero"`
}
