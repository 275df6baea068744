package seal

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"golang.org/x/crypto/nacl/box"

	"pushrelay/wire"
)

const bodyVersion = "byollm/v1/envelope"

// Refusals of Open in the order in which it judges, and of Seal.
var (
	// ErrNotForUs means that the envelope's outside names another recipient, sender or direction.
	ErrNotForUs = errors.New("seal: envelope is not for us")
	// ErrUnopenable means that the ciphertext doesn't open with our key: damaged, or sealed to another.
	ErrUnopenable = errors.New("seal: ciphertext does not open")
	// ErrMalformed means that what was sealed isn't a signed message.
	ErrMalformed = errors.New("seal: sealed message is malformed")
	// ErrBadSignature means that the pinned sender didn't sign what was sealed.
	ErrBadSignature = errors.New("seal: sealed message is not signed by the sender")
	// ErrContextMismatch means that the signed message belongs to another job, party, deadline or direction.
	ErrContextMismatch = errors.New("seal: signed context does not match")
	// ErrTooLarge means that the sealed envelope would have over wire.MaxEnvelopeBytes.
	ErrTooLarge = errors.New("seal: envelope is too large")
	// ErrNotText means that a plaintext isn't valid UTF-8 and so can't be sent unchanged.
	ErrNotText = errors.New("seal: plaintext is not valid UTF-8")
)

// Context is what a sealed message is bound to, beside its parties; DeadlineAt is the job's, in epoch ms.
type Context struct {
	JobID      string
	Direction  wire.Direction
	DeadlineAt int64
}

// Expected is what Open holds a message against. Empty key ids stand for the pinned sender's and our own.
type Expected struct {
	JobID          string
	Direction      wire.Direction
	SenderKeyID    string
	RecipientKeyID string
}

// Seal signs plaintext as k and seals it to a recipient whose identity must verify. Refusals: wire.ErrBadIdentity,
// ErrNotText, ErrTooLarge.
func Seal(k *Keys, to wire.PublicIdentity, c Context, plaintext []byte) (wire.Envelope, error) {
	if err := to.Verify(); err != nil {
		return wire.Envelope{}, err
	}
	recipient, err := to.EncryptionKey()
	if err != nil {
		return wire.Envelope{}, err
	}
	if lowOrder(k, recipient) {
		return wire.Envelope{}, wire.ErrBadIdentity
	}
	if !utf8.Valid(plaintext) || !utf8.ValidString(c.JobID) {
		return wire.Envelope{}, ErrNotText
	}
	if len(plaintext) > wire.MaxEnvelopeBytes {
		return wire.Envelope{}, ErrTooLarge
	}
	recipientID, err := to.KeyID()
	if err != nil {
		return wire.Envelope{}, err
	}
	inner := k.signed(recipientID, c, plaintext)
	ciphertext, err := box.SealAnonymous(nil, inner, &recipient, rand.Reader)
	if err != nil {
		return wire.Envelope{}, err
	}
	e := wire.Envelope{
		RecipientKeyID: recipientID, SenderKeyID: k.keyID, Direction: c.Direction, DeadlineAt: c.DeadlineAt,
	}
	e.Raw = wire.AppendEnvelope(nil, e, wire.EncodeBase64(ciphertext))
	if len(e.Raw) > wire.MaxEnvelopeBytes {
		return wire.Envelope{}, ErrTooLarge
	}
	return e, nil
}

// lowOrder tells keys apart that would give every sender the same shared secret; libsodium refuses them too.
func lowOrder(k *Keys, recipient [32]byte) bool {
	pub, err := ecdh.X25519().NewPublicKey(recipient[:])
	if err != nil {
		return true
	}
	_, err = k.encryption.ECDH(pub)
	return err != nil
}

// signed builds what goes into the box: the body, and the signature over its exact bytes.
func (k Keys) signed(recipientID string, c Context, plaintext []byte) []byte {
	body := make([]byte, 0, len(plaintext)+len(plaintext)/8+512)
	body = append(body, `{"v":"`+bodyVersion+`","jobId":`...)
	body = wire.AppendString(body, c.JobID)
	body = append(body, `,"senderKeyId":`...)
	body = wire.AppendString(body, k.keyID)
	body = append(body, `,"recipientKeyId":`...)
	body = wire.AppendString(body, recipientID)
	body = append(body, `,"deadlineAt":`...)
	body = strconv.AppendInt(body, c.DeadlineAt, 10)
	body = append(body, `,"direction":`...)
	body = wire.AppendString(body, string(c.Direction))
	body = append(body, `,"plaintext":`...)
	body = append(wire.AppendString(body, string(plaintext)), '}')

	inner := make([]byte, 0, base64.RawURLEncoding.EncodedLen(len(body))+256)
	inner = append(inner, `{"body":"`...)
	inner = base64.RawURLEncoding.AppendEncode(inner, body)
	inner = append(inner, `","signature":`...)
	return append(wire.AppendString(inner, k.sign(body)), '}')
}

// Open opens an envelope for k and checks that the pinned, verified sender signed it for what is expected; refusals
// in their declared order.
func Open(k *Keys, sender wire.PublicIdentity, want Expected, e wire.Envelope) ([]byte, error) {
	key, err := sender.Key()
	if err != nil {
		return nil, err
	}
	if want.SenderKeyID == "" {
		want.SenderKeyID = wire.KeyID(key)
	}
	if want.RecipientKeyID == "" {
		want.RecipientKeyID = k.keyID
	}
	if e.RecipientKeyID != want.RecipientKeyID || e.SenderKeyID != want.SenderKeyID || e.Direction != want.Direction {
		return nil, ErrNotForUs
	}
	inner, err := k.unbox(e)
	if err != nil {
		return nil, err
	}
	body, err := verified(key, inner)
	if err != nil {
		return nil, err
	}
	return matched(body, want, e.DeadlineAt)
}

func (k Keys) unbox(e wire.Envelope) ([]byte, error) {
	text, err := e.Ciphertext()
	if err != nil {
		return nil, ErrUnopenable
	}
	ciphertext, err := wire.DecodeBase64(string(text))
	if err != nil {
		return nil, ErrUnopenable
	}
	public := [32]byte(k.encryption.PublicKey().Bytes())
	private := [32]byte(k.encryption.Bytes())
	inner, ok := box.OpenAnonymous(nil, ciphertext, &public, &private)
	if !ok {
		return nil, ErrUnopenable
	}
	return inner, nil
}

func verified(key ed25519.PublicKey, inner []byte) ([]byte, error) {
	var parts struct {
		Body      string `json:"body"`
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(inner, &parts); err != nil {
		return nil, ErrMalformed
	}
	body, err := wire.DecodeBase64(parts.Body)
	if err != nil {
		return nil, ErrMalformed
	}
	signature, err := wire.DecodeBase64(parts.Signature)
	if err != nil || !ed25519.Verify(key, body, signature) {
		return nil, ErrBadSignature
	}
	return body, nil
}

func matched(body []byte, want Expected, deadlineAt int64) ([]byte, error) {
	var claims struct {
		V              string         `json:"v"`
		JobID          string         `json:"jobId"`
		SenderKeyID    string         `json:"senderKeyId"`
		RecipientKeyID string         `json:"recipientKeyId"`
		DeadlineAt     int64          `json:"deadlineAt"`
		Direction      wire.Direction `json:"direction"`
		Plaintext      *string        `json:"plaintext"`
	}
	if err := json.Unmarshal(body, &claims); err != nil || claims.V != bodyVersion {
		return nil, ErrMalformed
	}
	if claims.JobID != want.JobID || claims.SenderKeyID != want.SenderKeyID ||
		claims.RecipientKeyID != want.RecipientKeyID || claims.DeadlineAt != deadlineAt || claims.Direction != want.Direction {
		return nil, ErrContextMismatch
	}
	if claims.Plaintext == nil {
		return nil, ErrMalformed
	}
	return []byte(*claims.Plaintext), nil
}
