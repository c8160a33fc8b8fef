// Turns shows a sandbox that lives across the turns of a conversation.
//
// The first program pauses the sandbox at the end of a turn and, knowing nothing
// but its ID, finds variable, file and process again in the next. In the second
// the sandbox pauses itself.
//
// It uses E2B when E2B_API_KEY is set, and an emulator inside this program
// otherwise. It ends with status 0 only if every check held.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	opts := &e2b.ClientOptions{}
	if os.Getenv("E2B_API_KEY") == "" {
		server, err := e2btest.NewServer(nil)
		if err != nil {
			return err
		}
		defer server.Close()
		opts = server.ClientOptions()
		fmt.Println("E2B_API_KEY is not set: using the emulator inside this program, at", server.APIURL())
	} else {
		fmt.Println("E2B_API_KEY is set: using E2B")
	}
	var checks checks
	if err := explicitPause(ctx, opts, &checks); err != nil {
		return err
	}
	if err := autoPause(ctx, opts, &checks); err != nil {
		return err
	}
	if checks.failed > 0 {
		return fmt.Errorf("%d of %d checks failed", checks.failed, checks.done)
	}
	fmt.Printf("\nall %d checks held\n", checks.done)
	return nil
}

// tick is how often the background process counts, at the most.
const tick = 100 * time.Millisecond

func explicitPause(ctx context.Context, opts *e2b.ClientOptions, c *checks) error {
	fmt.Println("\n== 1. Pause at the end of a turn, connect in the next")
	client, err := e2b.NewClient(opts)
	if err != nil {
		return err
	}
	sbx, err := client.Create(ctx, &e2b.CreateOptions{Template: "code-interpreter", Timeout: 300 * time.Second})
	if err != nil {
		return err
	}
	id := sbx.ID()
	fmt.Println("turn 1: created", id)
	defer kill(ctx, client, id)

	csv := sales(1200)
	if err := sbx.Files.Write(ctx, "sales.csv", csv, nil); err != nil {
		return err
	}
	exec, err := code(ctx, sbx, "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nlen(rows)")
	if err != nil {
		return err
	}
	fmt.Println("turn 1: loaded", exec, "rows into a variable")
	counter := "while :; do n=$((n+1)); echo $n > count.tmp; mv count.tmp count; sleep " + fmt.Sprint(tick.Seconds()) + "; done"
	proc, err := sbx.Commands.Start(ctx, counter, nil)
	if err != nil {
		return err
	}
	if err := proc.Close(); err != nil { // let go of it: it counts on
		return err
	}
	before, err := count(ctx, sbx)
	if err != nil {
		return err
	}
	read := time.Now()
	fmt.Printf("turn 1: process %d counts in the background and is at %d\n", proc.PID(), before)
	start := time.Now()
	paused, err := sbx.BetaPause(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("turn 1: paused in %v\n", since(start))
	c.check("this call paused it", paused)
	client.CloseIdleConnections()

	fmt.Println("        ... the user types for two seconds ...")
	idle := time.Now()
	if err := wait(ctx, 2*time.Second); err != nil {
		return err
	}

	// All that is left of turn 1 is the ID.
	if client, err = e2b.NewClient(opts); err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	asleep := time.Since(idle)
	start = time.Now()
	if sbx, err = client.Connect(ctx, id, nil); err != nil {
		return err
	}
	fmt.Printf("turn 2: connected and resumed in %v\n", since(start))
	after, err := count(ctx, sbx)
	if err != nil {
		return err
	}
	awake := time.Since(read) - asleep
	c.check("connect woke the sandbox", sbx.Resumed())
	exec, err = code(ctx, sbx, "len(rows), rows[0]['product'], rows[-1]['amount']")
	if err != nil {
		return err
	}
	c.check("the variable is there: "+exec, exec == "(1200, 'apples', '11.99')")
	got, err := sbx.Files.Read(ctx, "sales.csv", nil)
	if err != nil {
		return err
	}
	c.check(fmt.Sprintf("the file is there: %d bytes, the same", len(got)), bytes.Equal(got, csv))
	procs, err := sbx.Commands.List(ctx)
	if err != nil {
		return err
	}
	found := false
	for _, p := range procs {
		found = found || p.PID == proc.PID()
	}
	c.check(fmt.Sprintf("process %d is there", proc.PID()), found)
	c.check(fmt.Sprintf("it did not count while paused: from %d to %d in %v awake, %v asleep",
		before, after, awake.Round(tick), asleep.Round(tick)),
		time.Duration(after-before-1)*tick <= awake)
	later, err := countPast(ctx, sbx, after)
	if err != nil {
		return err
	}
	c.check(fmt.Sprintf("it counts on: %d", later), later > after)
	return nil
}

func autoPause(ctx context.Context, opts *e2b.ClientOptions, c *checks) error {
	fmt.Println("\n== 2. A sandbox that pauses itself when its time is over")
	client, err := e2b.NewClient(opts)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	lifetime := 3 * time.Second
	if os.Getenv("E2B_API_KEY") != "" {
		lifetime = 20 * time.Second // the first cell may take a while
	}
	sbx, err := client.BetaCreate(ctx, &e2b.BetaCreateOptions{
		Template: "code-interpreter", Timeout: lifetime, AutoPause: true,
	})
	if err != nil {
		return err
	}
	fmt.Println("turn 1: created", sbx.ID(), "with a lifetime of", lifetime)
	defer kill(ctx, client, sbx.ID())
	if _, err := code(ctx, sbx, "state = {'step': 7}"); err != nil {
		return err
	}
	start := time.Now()
	for {
		info, err := sbx.Info(ctx)
		if err != nil {
			return err
		}
		if info.State == e2b.StatePaused {
			break
		}
		if err := wait(ctx, tick); err != nil {
			return err
		}
	}
	fmt.Printf("        it paused itself after %v\n", since(start))
	start = time.Now()
	if sbx, err = client.Connect(ctx, sbx.ID(), &e2b.ConnectOptions{Timeout: 300 * time.Second}); err != nil {
		return err
	}
	fmt.Printf("turn 2: connected and resumed in %v\n", since(start))
	c.check("connect woke the sandbox", sbx.Resumed())
	got, err := code(ctx, sbx, "state['step'] + 1")
	if err != nil {
		return err
	}
	c.check("the state is there: step + 1 is "+got, got == "8")
	info, err := sbx.Info(ctx)
	if err != nil {
		return err
	}
	c.check("it will pause itself again", info.OnTimeout == e2b.TimeoutPause)
	return nil
}

// code runs code and returns its value. An exception in it is an error here.
func code(ctx context.Context, sbx *e2b.Sandbox, src string) (string, error) {
	exec, err := sbx.RunCode(ctx, src, nil)
	if err != nil {
		return "", err
	}
	if exec.Error != nil {
		return "", exec.Error
	}
	return exec.Text(), nil
}

// count returns what the background process has counted to.
func count(ctx context.Context, sbx *e2b.Sandbox) (int, error) { return countPast(ctx, sbx, 0) }

// countPast waits until the background process is past n.
func countPast(ctx context.Context, sbx *e2b.Sandbox, n int) (int, error) {
	for {
		b, err := sbx.Files.Read(ctx, "count", nil)
		if err == nil {
			if got, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && got > n {
				return got, nil
			}
		}
		if err := wait(ctx, tick/4); err != nil {
			return 0, err
		}
	}
}

// sales makes a CSV of n rows.
func sales(n int) []byte {
	products := []string{"apples", "pears", "plums"}
	b := []byte("order,product,amount\n")
	for i := range n {
		b = fmt.Appendf(b, "%d,%s,%d.99\n", i+1, products[i%len(products)], i%12)
	}
	return b
}

// kill ends the sandbox, also after ctx has ended: a forgotten one costs money.
func kill(ctx context.Context, client *e2b.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if _, err := client.Kill(ctx, id); err != nil {
		fmt.Fprintln(os.Stderr, "turns: cleaning up:", err)
	}
	client.CloseIdleConnections()
}

// checks counts what held and what did not.
type checks struct{ done, failed int }

func (c *checks) check(what string, held bool) {
	c.done++
	mark := "  ok  "
	if !held {
		c.failed++
		mark = " FAIL "
	}
	fmt.Println(mark, what)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Microsecond) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
