package wire

import "github.com/go-json-experiment/json/jsontext"

// ParseCapabilities reads what a daemon can run, strictly in its dialect, at most 256 entries; kinds and backend ids
// are open words.
func ParseCapabilities(d Dialect, raw []byte) ([]Capability, error) {
	var caps []Capability
	return caps, capabilities(d, &caps)("capabilities", raw)
}

func capabilities(d Dialect, dst *[]Capability) reader {
	return func(what string, v jsontext.Value) error {
		*dst = []Capability{}
		return readList(what, v, MaxList, func(item string, v jsontext.Value) error {
			var c Capability
			if err := capability(d.vocabulary(), item, v, &c); err != nil {
				return err
			}
			*dst = append(*dst, c)
			return nil
		})
	}
}

func capability(voc vocabulary, what string, v jsontext.Value, c *Capability) error {
	fields := make([]field, 0, 7)
	fields = append(fields,
		need("kind", identifier(&c.Kind)), need("backendId", identifier(&c.BackendID)),
		need("backendClass", word(&c.BackendClass, "http", "process")),
		need("model", nonEmpty(&c.Model)), need("offerScope", word(&c.OfferScope, voc.audiences...)))
	if voc.service {
		var known []string
		fields = append(fields, need("service", nonEmpty(&c.Service)), may("knownModels", texts(&known)))
	}
	return readObject(what, v, true, fields...)
}

// AppendCapabilities appends the list that ParseCapabilities reads in that dialect; a nil list is [].
func AppendCapabilities(dst []byte, d Dialect, caps []Capability) []byte {
	voc := d.vocabulary()
	dst = append(dst, '[')
	for i, c := range caps {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"kind":`...)
		dst = AppendString(dst, c.Kind)
		if voc.service {
			dst = appendTextMember(dst, "service", c.Service)
		}
		dst = appendTextMember(dst, "backendId", c.BackendID)
		dst = appendTextMember(dst, "backendClass", c.BackendClass)
		dst = appendTextMember(dst, "model", c.Model)
		dst = append(appendTextMember(dst, "offerScope", c.OfferScope), '}')
	}
	return append(dst, ']')
}
