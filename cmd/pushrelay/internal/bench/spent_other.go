//go:build !unix

package bench

import "errors"

// spent can't answer the processor time that this process took.
func spent() (answer, error) {
	return answer{}, errors.New("processor time is measured on Unix systems only")
}
