package hub

import "pushrelay/wire"

// Paired answers what an approved device is told when it pairs: who it is, whose, and which sites it serves. False when the
// projection in force doesn't have exactly this identity, or has it as revoked.
func (h *Hub) Paired(keyID string, id wire.PublicIdentity) (wire.PairPollResponse, bool) {
	cur := h.proj.Current()
	dev, ok := cur.DeviceByKeyID(keyID)
	if !ok || dev.Identity.Identity != id.Identity || dev.Identity.Encryption != id.Encryption || cur.Revoked(dev.Runner) {
		return wire.PairPollResponse{}, false
	}
	out := wire.PairPollResponse{RunnerID: dev.Runner, Owner: dev.Owner, Sites: map[string]wire.PublicIdentity{}}
	for _, s := range cur.SitesOf(dev.Owner) {
		out.Sites[s.KeyID] = s.Identity
	}
	return out, true
}
