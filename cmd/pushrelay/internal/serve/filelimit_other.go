//go:build !unix

package serve

// ignoreFileLimit has nothing to ignore.
func ignoreFileLimit() {}
