package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A backup that is put back knows nothing of what came later. With a new epoch sites publish that again.
func TestABackupThatIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	site, file := w.sites[0], filepath.Join(w.data, databaseName)
	site.startSite()
	w.start()
	w.listen()
	publish := func() {
		e := w.newJob(site.name)
		w.ledger.add(e)
		site.submit(e.id)
		w.until("published", w.made, func(e *entry) bool { return e.enqueued })
	}
	publish() // in the backup
	w.stop()
	backup, err := os.ReadFile(file)
	require.NoError(t, err)
	w.start()
	w.listen()
	w.connected(site)
	publish() // not in the backup
	w.stop()
	require.NoError(t, os.WriteFile(file, backup, 0o600))
	out, err := exec.Command(os.Getenv(programVar), "store", "restored", w.data).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "new epoch")

	w.start()
	w.listen()
	for _, d := range w.daemons {
		d.startDaemon()
	}
	w.settle()
	w.faultless("in the end")
	w.finish()
}
