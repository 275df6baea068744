package app

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes, written as a number with an optional KiB, MiB or GiB.
type Bytes int64

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// UnmarshalText reads "1048576", "512KiB", "256MiB" or "1GiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	s, unit := strings.TrimSpace(string(text)), Bytes(1)
	for suffix, u := range map[string]Bytes{"KiB": KiB, "MiB": MiB, "GiB": GiB} {
		if rest, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(rest), u
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return fmt.Errorf("%q isn't a size: write a whole number, alone or with KiB, MiB or GiB", string(text))
	}
	*b = Bytes(n) * unit
	return nil
}

// MarshalText writes the size with the largest unit that divides it.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String writes the size with the largest unit that divides it.
func (b Bytes) String() string {
	switch {
	case b != 0 && b%GiB == 0:
		return strconv.FormatInt(int64(b/GiB), 10) + "GiB"
	case b != 0 && b%MiB == 0:
		return strconv.FormatInt(int64(b/MiB), 10) + "MiB"
	case b != 0 && b%KiB == 0:
		return strconv.FormatInt(int64(b/KiB), 10) + "KiB"
	}
	return strconv.FormatInt(int64(b), 10)
}
