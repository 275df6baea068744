package submit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxLineBytes bounds a job's text; the protocol's own limit is counted in characters.
const maxLineBytes = 4 << 20

// line is one line of the input that isn't empty, from number 1.
type line struct {
	number int
	text   string
}

// readLines sends lines until the input ends, and closes the channel. A blocked read outlives ctx; the process ends soon.
func readLines(ctx context.Context, in io.Reader) (<-chan line, <-chan error) {
	lines, failed := make(chan line), make(chan error, 1)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(make([]byte, 64<<10), maxLineBytes)
		n := 1
		for ; scanner.Scan(); n++ {
			text := strings.TrimSuffix(scanner.Text(), "\r")
			if strings.TrimSpace(text) == "" {
				continue
			}
			select {
			case lines <- line{n, text}:
			case <-ctx.Done():
				return
			}
		}
		if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
			failed <- fmt.Errorf("line %d is longer than %d bytes; the lines before it were published, it and the rest were not: shorten it", n, maxLineBytes)
		} else if err != nil {
			failed <- fmt.Errorf("the jobs can't be read beyond line %d: %w", n-1, err)
		}
	}()
	return lines, failed
}

// gather answers a batch of at most limit lines, without waiting for more than the first; more is false at the end.
func gather(ctx context.Context, lines <-chan line, limit int) (batch []line, more bool) {
	select {
	case l, ok := <-lines:
		if !ok {
			return nil, false
		}
		batch = append(batch, l)
	case <-ctx.Done():
		return nil, false
	}
	for len(batch) < limit {
		select {
		case l, ok := <-lines:
			if !ok {
				return batch, false
			}
			batch = append(batch, l)
		default:
			return batch, true
		}
	}
	return batch, true
}
