//go:build linux || darwin

package box

import "strings"

// A limit is one that the processes of each sandbox have together.
type limit struct {
	option     string // the field of Options
	controller string // what the kernel calls it
	value      int64
}

const (
	pidsController   = "pids"
	memoryController = "memory"
)

func (o *Options) limits() []limit {
	var limits []limit
	if o.ProcessLimit > 0 {
		limits = append(limits, limit{"ProcessLimit", pidsController, int64(o.ProcessLimit)})
	}
	if o.MemoryLimit > 0 {
		limits = append(limits, limit{"MemoryLimit", memoryController, o.MemoryLimit})
	}
	return limits
}

// namesOf lists the options of limits.
func namesOf(limits []limit) string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.option
	}
	return strings.Join(names, " and ")
}
