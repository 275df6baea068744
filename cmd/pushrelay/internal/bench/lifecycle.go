package bench

import (
	"context"
	"fmt"

	"pushrelay/cmd/pushrelay/internal/app"
)

// Lifecycle measures whole lives of jobs, from enqueue to collected, against bare echoes in turns.
type Lifecycle struct {
	Output
	Sites   int     `default:"32" help:"Sites, 1 to 512."`
	Daemons int     `default:"64" help:"Daemons, 1 to 2,048; each of its own owner, and each owner consents to each site."`
	Open    int     `default:"1000" help:"Jobs open at once, 1 to 100,000."`
	Slots   int     `default:"16" help:"Jobs that a daemon takes at once, 1 to 64."`
	Queued  int     `default:"0" help:"Measure also with so many jobs queued besides, 0 to 1,000,000; compared with 1,000."`
	Seconds float64 `default:"3" help:"Time of each measurement, 0.1 to 120."`
	Debug   bool    `help:"Measure also with the debug page served and nobody looking at it."`
	Rounds  int     `default:"3" help:"Measurements of each kind, in turns, 1 to 20; medians are shown."`
	Store   string  `default:"memory" enum:"memory,disk" help:"The relay's store: memory, or disk, which is measured beside memory."`
	Dir     string  `type:"existingdir" env:"-" placeholder:"DIR" help:"Folder on the disk to measure; files are made in it and removed. Default: the system's temporary folder."`

	exe string // of the children; empty means this one
}

// Validate checks the ranges of the flags.
func (c *Lifecycle) Validate() error {
	return firstError(
		within("sites", c.Sites, 1, 512), within("daemons", c.Daemons, 1, 2048), within("open", c.Open, 1, 100_000),
		within("slots", c.Slots, 1, 64), within("queued", c.Queued, 0, 1_000_000),
		within("seconds", c.Seconds, 0.1, 120), within("rounds", c.Rounds, 1, 20))
}

// Run prints the figure.
func (c *Lifecycle) Run(ctx context.Context, s app.Streams) error {
	return c.run(ctx, s.Out, c.measure)
}

type lifecycleFigure struct {
	Lives  float64 `json:"lives_per_second"`
	Echoes float64 `json:"echoes_per_second"`
	Ratio  float64 `json:"ratio"`

	Whole  int     `json:"lives"`           // all that were checked
	Frames float64 `json:"frames_per_life"` // of the clients, both ways
	Again  int64   `json:"repeated_pushes"`

	// Processor time, which doesn't depend on who else uses the machine, in microseconds.
	RelayTime   float64 `json:"relay_us_per_life"`
	ClientsTime float64 `json:"clients_us_per_life"`
	EchoTime    float64 `json:"us_per_echo"` // of both ends
	TimeRatio   float64 `json:"time_ratio"`  // what ratio would be on a machine of our own

	Store  string      `json:"store"`
	Memory *memorySide `json:"memory,omitempty"` // beside the disk store's figures

	Depth []depthEntry `json:"depth,omitempty"`
	Debug *debugSide   `json:"debug,omitempty"` // beside the figures without it
}

// debugSide is the same with the debug page served.
type debugSide struct {
	Lives     float64 `json:"lives_per_second"`
	RelayTime float64 `json:"relay_us_per_life"`
	TimeRatio float64 `json:"time_ratio"` // of the relay's processor time for a life without it to that with it
}

// memorySide is what the memory store did in the same run.
type memorySide struct {
	Lives     float64 `json:"lives_per_second"`
	RelayTime float64 `json:"relay_us_per_life"`
	Ratio     float64 `json:"ratio"` // of the disk store's lives to these
}

// depthEntry is the rate with so many jobs queued besides the open ones.
type depthEntry struct {
	Queued int     `json:"queued"`
	Lives  float64 `json:"lives_per_second"`
	Ratio  float64 `json:"ratio"` // to the first entry
	Time   float64 `json:"relay_us_per_life"`
	ByTime float64 `json:"time_ratio"` // to the first entry, by processor time of relay and clients
}

// shallow is the depth that a deep queue is compared with.
const shallow = 1000

func (f *lifecycleFigure) rows() [][2]string {
	rows := [][2]string{
		{"lives a second, " + f.Store + " store", text(f.Lives, 0)},
		{"bare echoes a second", text(f.Echoes, 0)},
		{"ratio", text(f.Ratio, 3)},
		{"processor time a life, relay, us", text(f.RelayTime, 1)},
		{"processor time a life, clients, us", text(f.ClientsTime, 1)},
		{"processor time an echo, both ends, us", text(f.EchoTime, 1)},
		{"ratio by processor time", text(f.TimeRatio, 3)},
		{"lives checked", fmt.Sprint(f.Whole)},
		{"frames a life", text(f.Frames, 2)},
		{"pushes repeated", fmt.Sprint(f.Again)},
	}
	if m := f.Memory; m != nil {
		rows = append(rows, [2]string{"lives a second, memory store", text(m.Lives, 0)},
			[2]string{"processor time a life, relay, memory store, us", text(m.RelayTime, 1)},
			[2]string{"disk store to memory store", text(m.Ratio, 3)})
	}
	for _, d := range f.Depth {
		rows = append(rows, [2]string{fmt.Sprintf("lives a second, %d queued", d.Queued), text(d.Lives, 0)})
		rows = append(rows, [2]string{"processor time a life, relay, us", text(d.Time, 1)})
	}
	if n := len(f.Depth); n > 0 {
		rows = append(rows, [2]string{"deep to shallow", text(f.Depth[n-1].Ratio, 3)},
			[2]string{"the same by processor time", text(f.Depth[n-1].ByTime, 3)})
	}
	if d := f.Debug; d != nil {
		rows = append(rows, [2]string{"lives a second, with the debug page", text(d.Lives, 0)},
			[2]string{"processor time a life, relay, us", text(d.RelayTime, 1)},
			[2]string{"without to with it, by processor time", text(d.TimeRatio, 3)})
	}
	return rows
}

func (c *Lifecycle) depths() []int {
	if c.Queued == 0 {
		return nil
	}
	return []int{min(shallow, c.Queued), c.Queued}
}
