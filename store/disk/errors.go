package disk

import "fmt"

// LockedError says that another process has the folder. Holder is what that process wrote of itself: pid, host, since when;
// empty when it wrote nothing.
type LockedError struct{ Path, Holder string }

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("%s is in use by another process", e.Path)
	}
	return fmt.Sprintf("%s is in use by %s", e.Path, e.Holder)
}

// ForeignError says that the file isn't a whole file of this store: cut short, damaged, or another program's. It was left
// as it is.
type ForeignError struct{ Path, Reason string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s can't be used: %s; it was left as it is", e.Path, e.Reason)
}

// VersionError says that the file has a format that this build doesn't know.
type VersionError struct {
	Path             string
	Found, Supported uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format %d, this build reads format %d; run the build that wrote it, or let its jobs end there "+
		"and begin with an empty folder", e.Path, e.Found, e.Supported)
}
