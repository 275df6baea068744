package bench

// Help shows examples.
func (Lifecycle) Help() string {
	return `Examples:

  pushrelay bench lifecycle
  pushrelay bench lifecycle --sites 8 --daemons 8 --rounds 1 --json
  pushrelay bench lifecycle --store disk --dir /var/lib/pushrelay`
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
func (Poll) Help() string {
	return `Examples:

  pushrelay bench poll
  pushrelay bench poll --depth 1000 --rounds 1 --json
  pushrelay bench poll --held 10000`
}

// Help shows examples.
func (Storm) Help() string {
	return `Examples:

  pushrelay bench storm
  pushrelay bench storm --sessions 500 --json`
}

// Help shows examples.
func (Store) Help() string {
	return `Examples:

  pushrelay bench store
  pushrelay bench store --callers 16 --jobs 10000 --json
  pushrelay bench store --dir /var/lib/pushrelay

A disk keeps what is acknowledged, so name a folder of the disk that the relay will use: a temporary folder may be in memory, where syncing costs nothing.`
}
