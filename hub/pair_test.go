package hub

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPairedAnswersFromTheProjection(t *testing.T) {
	inWorld(t, Settings{}, func(w *world) {
		one := w.party("d1")
		got, ok := w.hub.Paired(one.keyID, one.identity)
		assert.True(t, ok)
		assert.Equal(t, "d1", got.RunnerID)
		assert.Equal(t, "ada", got.Owner)
		assert.Len(t, got.Sites, 1)
		assert.Equal(t, w.party("shop").identity, got.Sites[w.party("shop").keyID])

		_, ok = w.hub.Paired("", w.party("nobody").identity)
		assert.False(t, ok)
		_, ok = w.hub.Paired(w.party("nobody").keyID, w.party("nobody").identity)
		assert.False(t, ok)
		other := one.identity
		other.Encryption = w.party("d2").identity.Encryption
		_, ok = w.hub.Paired(one.keyID, other)
		assert.False(t, ok, "an identity with another encryption key wasn't approved")

		w.replace(w.basic().MarkRevoked("d1", true))
		_, ok = w.hub.Paired(one.keyID, one.identity)
		assert.False(t, ok, "revoked")
		w.replace(w.without())
		got, ok = w.hub.Paired(one.keyID, one.identity)
		assert.True(t, ok)
		assert.NotNil(t, got.Sites)
		assert.Empty(t, got.Sites, "no consent yet: it serves nobody")
	})
}
