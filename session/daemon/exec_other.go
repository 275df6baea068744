//go:build !unix

package daemon

import "os/exec"

// ownGroup leaves the command as it is: without process groups only the command itself is ended.
func ownGroup(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}
