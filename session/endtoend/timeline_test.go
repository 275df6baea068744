package endtoend

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// timeline records events, and lets a test wait for one.
type timeline struct {
	start time.Time

	mu   sync.Mutex
	all  []string
	seen map[[3]string]int
	news chan struct{}
}

// String lists all events with the time since the first one.
func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

func newTimeline() *timeline {
	return &timeline{start: time.Now(), seen: map[[3]string]int{}, news: make(chan struct{})}
}

func (l *timeline) add(who, what, job, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[[3]string{who, what, job}]++
	l.all = append(l.all, fmt.Sprintf("%8d ms  %s %s %s %s", time.Since(l.start).Milliseconds(), who, what, job, detail))
	close(l.news)
	l.news = make(chan struct{})
}

func (l *timeline) count(who, what, job string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[[3]string{who, what, job}]
}

// changes answers a channel that is closed when something happens.
func (l *timeline) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news
}

// wait waits until something happened n times.
func (l *timeline) wait(t *testing.T, n int, who, what, job string) {
	t.Helper()
	limit := time.After(patience)
	for {
		l.mu.Lock()
		have, news := l.seen[[3]string{who, what, job}], l.news
		l.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-news:
		case <-limit:
			t.Fatalf("%s: %s %s didn't happen, but:\n%s", who, what, job, l)
		}
	}
}

// until asks again and again until it holds.
func (l *timeline) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("never: %s; what happened:\n%s", what, l)
		}
	}
}
