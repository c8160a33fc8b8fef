package box

import (
	"context"
	"errors"
	"fmt"
)

var errNoCgroups = errors.New("this system has no control groups")

// Nobody can have one of these here.
type (
	cgroups struct{}
	cgroup  struct{ commands string }
)

func newLimits(_ string, limits []limit) ([]*cgroups, []limit, error) {
	if len(limits) > 0 {
		return nil, nil, fmt.Errorf("%s: %w", namesOf(limits), errNoCgroups)
	}
	return nil, nil, nil
}

func newCgroups(string, []limit) (*cgroups, error) { return nil, errNoCgroups }
func (*cgroups) add(string) (*cgroup, error)       { return nil, errNoCgroups }
func (*cgroups) remove() error                     { return errNoCgroups }
func (*cgroup) tasks() string                      { return "" }
func (*cgroup) freeze(context.Context) error       { return errNoCgroups }
func (*cgroup) thaw(context.Context) error         { return errNoCgroups }
func (*cgroup) remove() error                      { return errNoCgroups }
