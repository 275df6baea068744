package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
)

//go:embed static
var static embed.FS

// file is one of the page's files, ready to be served.
type file struct {
	content []byte
	kind    string
	tag     string
}

// readFiles answers the page's files by their paths below Prefix.
func readFiles() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := kinds()[path.Ext(name)]
		if !ok {
			return fmt.Errorf("web: %s has a name that no kind is known for", name)
		}
		sum := sha256.Sum256(content)
		f := file{content: content, kind: kind, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		files["/"+path.Base(name)] = f
		if path.Base(name) == "index.html" {
			files["/"] = f
		}
		return nil
	})
	return files, err
}

// kinds are the page's own, whatever the machine's tables say.
func kinds() map[string]string {
	utf8 := func(kind string) string { return mime.FormatMediaType(kind, map[string]string{"charset": "utf-8"}) }
	return map[string]string{
		".html": utf8("text/html"), ".css": utf8("text/css"), ".js": utf8("text/javascript"), ".svg": "image/svg+xml",
	}
}

// serve answers the file, or that the browser has it. It is asked for each time: a new relay has new files.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, "bad-request", "use GET")
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(f.content)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.content) // the browser went away: nobody is left to tell
	}
}
