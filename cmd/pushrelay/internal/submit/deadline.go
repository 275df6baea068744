package submit

import (
	"fmt"
	"time"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Deadline is a duration from a job's publishing, or a point in time.
type Deadline struct {
	after time.Duration
	at    time.Time
}

// UnmarshalText reads "10m" or "2030-01-31T12:00:00Z".
func (d *Deadline) UnmarshalText(text []byte) error {
	if after, err := time.ParseDuration(string(text)); err == nil {
		*d = Deadline{after: after}
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%q is neither a duration like 10m nor a time like 2030-01-31T12:00:00Z", string(text))
	}
	*d = Deadline{at: at}
	return nil
}

// String writes what UnmarshalText reads.
func (d Deadline) String() string {
	if d.at.IsZero() {
		return d.after.String()
	}
	return d.at.Format(time.RFC3339)
}

// from answers the deadline of a job published now.
func (d Deadline) from(now time.Time) time.Time {
	if d.at.IsZero() {
		return now.Add(d.after)
	}
	return d.at
}

func (d Deadline) check() error {
	now := time.Now()
	wait := d.from(now).Sub(now)
	switch {
	case wait <= 0:
		return app.Usagef("--deadline %s has passed; set it from 1s to 168h ahead", d)
	case wait < time.Second, wait > 7*24*time.Hour:
		return app.Usagef("--deadline %s is %v away; set it from 1s to 168h ahead", d, wait.Round(time.Second))
	}
	return nil
}
