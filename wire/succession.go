package wire

import "github.com/go-json-experiment/json/jsontext"

// MaxSuccessionLinks bounds a chain of key rotations, in links; longer ones are refused unread.
const MaxSuccessionLinks = 64

const successionContext = "byollm/v1/site-succession:"

// SuccessionStatement is what a retiring key signs to name its successor, both given as key ids.
func SuccessionStatement(fromKeyID, toKeyID string) []byte {
	return []byte(successionContext + fromKeyID + ":" + toKeyID)
}

// Verify checks that the predecessor's identity holds and that it signed over to toKeyID; else ErrBadSuccession.
func (s Succession) Verify(toKeyID string) error {
	if s.Identity.Verify() != nil {
		return ErrBadSuccession
	}
	key, err := s.Identity.Key()
	if err != nil || !verify(key, SuccessionStatement(KeyID(key), toKeyID), s.Signature) {
		return ErrBadSuccession
	}
	return nil
}

// VerifyChain checks at most 64 links, oldest first: each leads to the next, the last to toKeyID. An empty chain holds:
// it claims nothing.
func VerifyChain(links []Succession, toKeyID string) error {
	if len(links) > MaxSuccessionLinks {
		return ErrBadSuccession
	}
	for i := len(links) - 1; i >= 0; i-- {
		if err := links[i].Verify(toKeyID); err != nil {
			return err
		}
		from, err := links[i].Identity.KeyID()
		if err != nil {
			return ErrBadSuccession
		}
		toKeyID = from
	}
	return nil
}

func succession(dst *Succession) reader {
	return func(what string, v jsontext.Value) error {
		return readObject(what, v, true,
			need("identity", publicIdentity(&dst.Identity)), need("signature", nonEmpty(&dst.Signature)))
	}
}
