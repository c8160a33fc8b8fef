// Package control is the emulated control plane: the REST routes under which
// sandboxes are created, paused, connected to, listed and killed, and the rules
// by which they expire.
//
// The statuses, the messages and the order of the checks are those of E2B's own
// server, oddities included, since clients come to depend on them.
package control
