package seal

import (
	"pushrelay/wire"
)

// Result is a result's plaintext: how the job ended, and what ran it.
type Result struct {
	Outcome Outcome
	Ran     Ran
}

// Outcome is how a job ended: ok with Text (and maybe ArtifactURL), error with Code, Message and Retryable, or canceled.
type Outcome struct {
	Outcome     string // a wire.Disposition word
	Text        string
	ArtifactURL string
	Code        string
	Message     string
	Retryable   bool
}

// Ran says what ran the job. DurationMs is wall-clock ms; Stop and StopReported are what newer daemons add.
type Ran struct {
	Model        string `json:"model"`
	BackendClass string `json:"backendClass"` // http or process
	DurationMs   int64  `json:"durationMs"`
	Stop         string `json:"stop,omitzero"` // end, length, stop-sequence or unknown
	StopReported *bool  `json:"stopReported,omitzero"`
}

// outcome is Outcome with presence, because each end has members of its own and no others.
type outcome struct {
	Outcome     string  `json:"outcome"`
	Text        *string `json:"text,omitzero"`
	ArtifactURL *string `json:"artifactUrl,omitzero"`
	Code        *string `json:"code,omitzero"`
	Message     *string `json:"message,omitzero"`
	Retryable   *bool   `json:"retryable,omitzero"`
}

type result struct {
	Outcome outcome `json:"outcome"`
	Ran     Ran     `json:"ran"`
}

// OK is the outcome of a job that produced text.
func OK(text string) Outcome { return Outcome{Outcome: wire.DispositionOK, Text: text} }

// Failed is the outcome of a job that failed; code and message mustn't be empty.
func Failed(code, message string, retryable bool) Outcome {
	return Outcome{Outcome: wire.DispositionError, Code: code, Message: message, Retryable: retryable}
}

// Canceled is the outcome of a job that its site stopped.
func Canceled() Outcome { return Outcome{Outcome: wire.DispositionCanceled} }

// Encode checks the result and writes it as JavaScript would; else ErrBadPlaintext. The envelope's disposition on the
// wire must be Outcome.Outcome.
func (r Result) Encode() ([]byte, error) {
	out := outcome{Outcome: r.Outcome.Outcome}
	switch out.Outcome {
	case wire.DispositionOK:
		out.Text = &r.Outcome.Text
		if r.Outcome.ArtifactURL != "" {
			out.ArtifactURL = &r.Outcome.ArtifactURL
		}
	case wire.DispositionError:
		out.Code, out.Message, out.Retryable = &r.Outcome.Code, &r.Outcome.Message, &r.Outcome.Retryable
	}
	full := result{Outcome: out, Ran: r.Ran}
	if err := full.check(); err != nil {
		return nil, err
	}
	return encode(full)
}

// ParseResult reads an opened result strictly; else ErrBadPlaintext. Compare Outcome.Outcome with the disposition that
// was declared outside.
func ParseResult(plaintext []byte) (Result, error) {
	r, err := decode[result](plaintext)
	if err != nil {
		return Result{}, err
	}
	if err := r.check(); err != nil {
		return Result{}, err
	}
	o := Outcome{Outcome: r.Outcome.Outcome}
	switch o.Outcome {
	case wire.DispositionOK:
		o.Text = *r.Outcome.Text
		if r.Outcome.ArtifactURL != nil {
			o.ArtifactURL = *r.Outcome.ArtifactURL
		}
	case wire.DispositionError:
		o.Code, o.Message, o.Retryable = *r.Outcome.Code, *r.Outcome.Message, *r.Outcome.Retryable
	}
	return Result{Outcome: o, Ran: r.Ran}, nil
}

func (r result) check() error {
	if err := r.Outcome.check(); err != nil {
		return err
	}
	if r.Ran.Model == "" || r.Ran.DurationMs < 0 {
		return bad("ran is incomplete")
	}
	if c := r.Ran.BackendClass; c != "http" && c != "process" {
		return bad("backendClass must be http or process")
	}
	switch r.Ran.Stop {
	case "", "end", "length", "stop-sequence", "unknown":
		return nil
	}
	return bad("stop is not one of its words")
}

func (o outcome) check() error {
	if !known(o.Outcome) {
		return bad("outcome must be ok, error or canceled")
	}
	isOK, isError := o.Outcome == wire.DispositionOK, o.Outcome == wire.DispositionError
	if (o.Text != nil) != isOK || o.ArtifactURL != nil && !isOK {
		return bad("text belongs to ok")
	}
	if (o.Code != nil) != isError || (o.Message != nil) != isError || (o.Retryable != nil) != isError {
		return bad("code, message and retryable belong to error")
	}
	if isError && (*o.Code == "" || *o.Message == "") {
		return bad("code and message must not be empty")
	}
	return nil
}
