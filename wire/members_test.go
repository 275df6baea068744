package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

type member struct{ name, value string }

// byCodec reads the members of an object with the codec alone.
func byCodec(raw []byte) (out []member, err error) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if dec.PeekKind() != '{' {
		return nil, errors.New("no object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		text := name.String()
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		out = append(out, member{text, string(v)})
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows")
	}
	return out, nil
}

func FuzzMembersAreTheCodecs(f *testing.F) {
	for _, s := range []string{
		``, ` `, `{`, `{}`, ` { } `, `{}x`, `{"a"}`, `{"a":}`, `{"a":1}`, `{"a":1,}`, `{,"a":1}`, `{"a":1 , "b" : 2}`, `[1]`, `"a"`, `null`,
		`{"a":01}`, `{"a":0}`, `{"a":-0}`, `{"a":1e3}`, `{"a":1.0}`, `{"a":1x}`, `{"a":true,"b":false,"c":null}`, `{"a":truex}`, `{"a":tru}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"\ud800":1}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", "{\"a\":\"\x01\"}",
		`{"a":"\n"}`, `{"a":"\x"}`, `{"a":"é"}`, `{"é":"a"}`, `{"a":{"b":1,"b":2}}`, `{"a":[1,{"b":[]}]}`, `{"a":[}`, `{"":""}`, `{"a":"`,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1,"b":1,"c":1,"d":1,"e":1}`,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1,"b":1,"c":1,"d":1,"1":1}`,
		`{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1,"b":1,"c":1,"d":1,"d":1}`,
		`{"a":{}}x`, `{"a":{}`, "{\"a\":1}\n", "\ufeff{}", `{"a":1:2}`, `{"a" 1}`, `{'a':1}`, `{a:1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		want, wantErr := byCodec(raw)
		var got []member
		err := eachMember("it", raw, func(name []byte, v jsontext.Value) error {
			got = append(got, member{string(name), string(v)})
			if cap(v) != len(v) {
				t.Errorf("%s may grow into what follows", v)
			}
			return nil
		})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: got %v, the codec says %v", raw, err, wantErr)
		}
		if err != nil {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%q: got %v, want %v", raw, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%q: got %v, want %v", raw, got, want)
			}
		}
	})
}

func TestMessagesNameTheWholePath(t *testing.T) {
	for raw, want := range map[string]string{
		`[{"kind":1}]`: "capabilities[0].kind must be a string",
		`[{"kind":"a","backendId":"b","backendClass":"http","model":"m","offerScope":"self","x":1}]`: "capabilities[0] has an unknown member",
		`[1]`: "capabilities[0] must be a JSON object",
		`{}`:  "capabilities must be a list",
	} {
		_, err := ParseCapabilities(Dialect0, []byte(raw))
		var e *Error
		if !errors.As(err, &e) || e.Message != want {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
