package bench

// Help shows examples.
func (Lifecycle) Help() string {
	return `Examples:

  pushrelay bench lifecycle
  pushrelay bench lifecycle --sites 8 --daemons 8 --rounds 1 --json`
}

// Help shows examples.
func (Latency) Help() string {
	return `Examples:

  pushrelay bench latency
  pushrelay bench latency --jobs 200 --warmup 20 --json`
}

// Help shows examples.
func (Idle) Help() string {
	return `Examples:

  pushrelay bench idle
  pushrelay bench idle --sessions 1000 --json`
}

// Help shows examples.
func (Storm) Help() string {
	return `Examples:

  pushrelay bench storm
  pushrelay bench storm --sessions 500 --json`
}
