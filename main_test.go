package e2b_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchServerEnv) != "" {
		benchServer()
		return
	}
	goleak.VerifyTestMain(m)
}

const benchServerEnv = "E2B_GO_BENCH_SERVER"

// benchServer is the emulator in a process of its own, so that benchmarks count
// what the client allocates. It ends with its standard input.
func benchServer() {
	server, err := e2btest.NewServer(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer server.Close()
	fmt.Fprintln(os.Stdout, server.APIURL(), server.SandboxURL(), server.APIKey())
	_, _ = io.Copy(io.Discard, os.Stdin)
}
