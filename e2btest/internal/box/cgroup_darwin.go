package box

import (
	"context"
	"errors"
)

var errNoCgroups = errors.New("this system has no control groups")

// Nobody can have one of these here.
type (
	cgroups struct{}
	cgroup  struct{}
)

func newCgroups(string) (*cgroups, error)    { return nil, errNoCgroups }
func (*cgroups) add(string) (*cgroup, error) { return nil, errNoCgroups }
func (*cgroups) remove() error               { return errNoCgroups }
func (*cgroup) freeze(context.Context) error { return errNoCgroups }
func (*cgroup) thaw(context.Context) error   { return errNoCgroups }
func (*cgroup) remove() error                { return errNoCgroups }
