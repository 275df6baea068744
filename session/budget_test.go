package session

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"pushrelay/wire"
)

func TestBudgetServesInOrder(t *testing.T) {
	b := NewBudget(wire.MaxFrameBytes)
	if !b.TryReserve(wire.MaxFrameBytes - 10) {
		t.Fatal("room")
	}
	var got []string
	note := func(s string) func() { return func() { got = append(got, s) } }
	b.Reserve(20, note("large"))
	b.Reserve(5, note("small"))
	if b.TryReserve(1) {
		t.Fatal("somebody jumped the queue")
	}
	if len(got) != 0 {
		t.Fatal(got)
	}
	b.Release(10)
	if fmt.Sprint(got) != "[large]" {
		t.Fatal(got)
	}
	b.Release(5)
	if fmt.Sprint(got) != "[large small]" {
		t.Fatal(got)
	}
	cancel := b.Reserve(100, note("never"))
	b.Reserve(1, note("behind"))
	if !cancel() || cancel() {
		t.Fatal("cancel")
	}
	if fmt.Sprint(got) != "[large small]" { // the budget is full
		t.Fatal(got)
	}
	b.Release(1)
	if fmt.Sprint(got) != "[large small behind]" {
		t.Fatal(got)
	}
}

func TestBudgetNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBudget(wire.MaxFrameBytes)
		var held []int64
		var cancels []func() bool
		asked, granted, cancelled := 0, 0, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := rapid.Int64Range(1, wire.MaxFrameBytes+1).Draw(t, "n")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				asked++
				cancels = append(cancels, b.Reserve(n, func() { granted++; held = append(held, min(n, b.Size())) }))
			case 1:
				if b.TryReserve(n) {
					held = append(held, n)
				}
			case 2:
				if len(held) > 0 {
					h := held[0]
					held = held[1:]
					b.Release(h)
				}
			case 3:
				if len(cancels) > 0 {
					if cancels[0]() {
						cancelled++
					}
					cancels = cancels[1:]
				}
			}
			var sum int64
			for _, h := range held {
				sum += h
			}
			if b.Used() != sum || sum > b.Size() {
				t.Fatalf("%d used, %d held", b.Used(), sum)
			}
		}
		for _, c := range cancels {
			if c() {
				cancelled++
			}
		}
		for len(held) > 0 {
			h := held[0]
			held = held[1:]
			b.Release(h)
		}
		if b.Used() != 0 || granted+cancelled != asked {
			t.Fatal(b.Used(), asked, granted, cancelled)
		}
	})
}
