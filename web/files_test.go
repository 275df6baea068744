package web

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pushrelay/hub"
)

func TestFilesAreServedWithTheirKinds(t *testing.T) {
	f := newFixture(t, nil)
	require.Greater(t, len(f.page.files), 10)
	for path, file := range f.page.files {
		resp := f.call(http.MethodGet, path, "", nil)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.Equal(t, file.kind, resp.Header.Get("Content-Type"), path)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, string(file.content), string(body))
		again := f.call(http.MethodGet, path, "", func(r *http.Request) { r.Header.Set("If-None-Match", resp.Header.Get("ETag")) })
		require.Equal(t, http.StatusNotModified, again.StatusCode, path)
		head := f.call(http.MethodHead, path, "", nil)
		require.Equal(t, http.StatusOK, head.StatusCode, path)
	}
}

// The policy forbids scripts and styles within markup, so there are none; and no code turns a text into markup.
func TestNothingIsInline(t *testing.T) {
	files, err := readFiles()
	require.NoError(t, err)
	forbidden := map[string][]string{
		".html": {`<script>`, `<style`, ` style=`, `javascript:`},
		".js": {
			"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "srcdoc", "cssText",
			"setHTML", "createContextualFragment", "localStorage", "sessionStorage", "document.cookie", "http://", "https://",
		},
	}
	handler := regexp.MustCompile(`(?i)<[^>]*\son[a-z]+\s*=`)
	for path, file := range files {
		text := strings.ReplaceAll(string(file.content), "http://www.w3.org/2000/svg", "")
		for ending, words := range forbidden {
			if !strings.HasSuffix(path, ending) {
				continue
			}
			for _, w := range words {
				require.NotContains(t, text, w, path)
			}
		}
		if strings.HasSuffix(path, ".html") {
			require.False(t, handler.MatchString(text), path)
		}
		require.Less(t, strings.Count(text, "\n"), 260, "%s is too long for one file", path)
	}
}

// The page knows a text for each reason, state and step that the relay may tell.
func TestThePageKnowsAllWords(t *testing.T) {
	files, err := readFiles()
	require.NoError(t, err)
	text := string(files["/reasons.js"].content)
	var words []string
	for _, c := range hub.ObstacleCodes() {
		words = append(words, string(c))
	}
	for _, s := range hub.JobStates() {
		words = append(words, s.String())
	}
	for _, w := range hub.Whys() {
		words = append(words, string(w))
	}
	for c := hub.ChangeQueued; c < hub.ChangeResync; c++ {
		words = append(words, c.String())
	}
	for _, w := range words {
		require.Regexp(t, `(?m)(^|[ {,])'?`+regexp.QuoteMeta(w)+`'?: `, text)
	}
}
