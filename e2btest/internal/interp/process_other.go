//go:build !unix

package interp

import (
	"context"
	"errors"
)

// noKernels says why there can be no kernels on this system, if that is so.
const noKernels = "kernels run on Unix only"

// startProcess reports that there are no kernels: they inherit pipes, which os/exec
// can pass on to a child on Unix only.
func startProcess(context.Context, *Server, *codeContext, string) (kernel, error) {
	return nil, errors.New(noKernels)
}
