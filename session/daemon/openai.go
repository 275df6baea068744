package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	defaultHTTPTimeout = 10 * time.Minute
	maxErrorBody       = 4 << 10
)

// OpenAIRunner asks a server with OpenAI's chat completions: Ollama, llama.cpp, vLLM, LM Studio and many more. It runs
// llm.generate and llm.chat.
//
// A server that can't be reached gives the job back, see ErrUnavailable. Status 408, 425, 429 and 5xx, a timeout and an
// answer that can't be read are failures that may pass; every other status is one that doesn't.
type OpenAIRunner struct {
	BaseURL   string        // such as http://127.0.0.1:11434; /v1 is added when it is missing
	Model     string        // as the server names it
	APIKey    string        // sent as a bearer token; may be empty
	Timeout   time.Duration // of a job; 0 means 10 minutes
	MaxOutput int           // bytes of the server's answer; 0 means 3 MiB
	Client    *http.Client  // nil means one that uses no proxy for loopback and follows no redirect
}

type chatRequest struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Stream   bool          `json:"stream"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatReply struct {
	Model   string `json:"model"`
	Choices []struct {
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

type chatFailure struct {
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Run sends one request and waits for its whole answer.
func (r *OpenAIRunner) Run(ctx context.Context, job Job) (Answer, error) {
	messages, err := chatMessages(job)
	if err != nil {
		return Answer{}, err
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = defaultHTTPTimeout
	}
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := r.ask(inner, messages)
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	if err != nil && inner.Err() != nil {
		return Answer{}, &RunError{Code: "timeout", Message: "the model took too long", Retryable: true, Err: err}
	}
	return answer, err
}

func chatMessages(job Job) ([]chatMessage, error) {
	var out []chatMessage
	if job.Prompt.System != "" {
		out = append(out, chatMessage{"system", job.Prompt.System})
	}
	switch job.Kind {
	case KindGenerate:
		return append(out, chatMessage{"user", job.Prompt.Text}), nil
	case KindChat:
		for _, m := range job.Prompt.Messages {
			out = append(out, chatMessage(m))
		}
		return out, nil
	}
	return nil, &RunError{Code: "unsupported-kind", Message: "this runner does llm.generate and llm.chat only"}
}

func (r *OpenAIRunner) ask(ctx context.Context, messages []chatMessage) (Answer, error) {
	body, err := json.Marshal(chatRequest{Model: r.Model, Messages: messages})
	if err != nil {
		return Answer{}, &RunError{Code: "bad-payload", Message: "the prompt can't be encoded", Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint(), bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("%w: the base URL can't be used", ErrUnavailable)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if r.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+r.APIKey)
	}
	resp, err := r.client().Do(req)
	if err != nil {
		return Answer{}, unreached(err)
	}
	defer func() { _ = resp.Body.Close() }() // read as far as it is wanted
	if resp.StatusCode != http.StatusOK {
		return Answer{}, refused(resp)
	}
	most := int64(orDefault(r.MaxOutput, defaultMaxOutput))
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return Answer{}, &RunError{Code: "backend-cut", Message: "the model's server broke off", Retryable: true, Err: err}
	}
	if int64(len(raw)) > most {
		return Answer{}, &RunError{Code: "output-too-large", Message: "the model's answer is too large"}
	}
	return r.read(raw)
}

func (r *OpenAIRunner) read(raw []byte) (Answer, error) {
	var reply chatReply
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Choices) == 0 {
		return Answer{}, &RunError{Code: "backend-answer", Message: "the model's server gave an answer that can't be read", Retryable: true, Err: err}
	}
	a := Answer{Text: reply.Choices[0].Message.Content, Model: reply.Model, Backend: "http", Stop: "unknown"}
	if a.Model == "" {
		a.Model = r.Model
	}
	switch reply.Choices[0].FinishReason {
	case "stop":
		a.Stop = "end"
	case "length":
		a.Stop = "length"
	}
	return a, nil
}

func (r *OpenAIRunner) endpoint() string {
	base := strings.TrimRight(r.BaseURL, "/")
	if !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	return base + "/chat/completions"
}

func (r *OpenAIRunner) client() *http.Client {
	if r.Client != nil {
		return r.Client
	}
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// unreached tells a server that isn't there, where another device may help, from one that broke off.
func unreached(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w: the model's server can't be reached: %w", ErrUnavailable, bare(err))
	}
	return &RunError{Code: "backend-cut", Message: "the model's server broke off", Retryable: true, Err: bare(err)}
}

// bare strips the URL, which may hold a password, from an error of the HTTP client.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func refused(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // as much as there is
	var f chatFailure
	_ = json.Unmarshal(raw, &f) // a server needn't say why
	e := &RunError{Code: "backend-refused", Message: fmt.Sprintf("the model's server answered %d", resp.StatusCode)}
	if f.Error.Message != "" {
		e.Message += ": " + f.Error.Message
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		e.Retryable = true
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		e.Code, e.Retryable = "backend-error", true
	}
	return e
}
