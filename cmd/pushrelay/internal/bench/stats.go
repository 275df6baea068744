package bench

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// percentile answers the smallest value that at least p percent of values don't exceed (nearest rank); 0 for none.
// values are sorted in place.
func percentile[T ~int64 | ~float64](values []T, p float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// median answers the middle value, or the mean of the two in the middle; 0 for none. values are sorted in place.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a/b, 4)
}

// round keeps so many decimals, so that JSON is readable.
func round(v float64, decimals int) float64 {
	f := math.Pow(10, float64(decimals))
	return math.Round(v*f) / f
}

func ms(d time.Duration) float64 { return round(inMs(d), 3) }

func inMs(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// text writes a figure for people, with at most so many decimals.
func text(v float64, decimals int) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
