//go:build race

package e2b_test

// raceEnabled makes tests that move much do with less: the race detector looks at
// every byte.
const raceEnabled = true
