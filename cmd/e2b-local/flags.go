package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// A config is what flags and environment say.
type config struct {
	e2btest.Options
	verbose, version bool
}

// A usageError is a mistake in flags, arguments and environment.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parse reads flags and, for those that are not given, the environment. Help, if that is
// asked for, goes to stderr.
func parse(args []string, getenv func(string) string, stderr io.Writer) (*config, error) {
	c := &config{Options: e2btest.Options{StatusPage: true}}
	flags := c.flags(getenv)
	flags.SetOutput(io.Discard) // of the flag package, which tells all its help with a mistake
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stderr)
		flags.Usage()
		return nil, err
	case err != nil:
		return nil, usageError{err}
	case flags.NArg() > 0:
		return nil, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var wrong error
	flags.VisitAll(func(f *flag.Flag) {
		name := variable(f.Name)
		value := getenv(name)
		if name == "" || value == "" || given[f.Name] || wrong != nil {
			return
		}
		if err := f.Value.Set(value); err != nil {
			wrong = fmt.Errorf("%s: invalid value %q: %w", name, value, err)
		}
	})
	switch err := checkKey(c.APIKey); {
	case wrong != nil:
	case err != nil: // that of a file was checked
		wrong = fmt.Errorf("E2B_API_KEY: %w", err)
	case c.Dir != "" && c.StateDir != "":
		wrong = errors.New("-dir and -state-dir: the files of the sandboxes can be in one of them only")
	}
	if wrong != nil {
		return nil, usageError{wrong}
	}
	return c, nil
}

func checkKey(key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the key holds other than visible ASCII characters")
	}
	return nil
}

// variable is the environment variable of a flag, "" if it has none.
func variable(flagName string) string {
	if flagName == "version" {
		return ""
	}
	return "E2B_LOCAL_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

func (c *config) flags(getenv func(string) string) *flag.FlagSet {
	flags := flag.NewFlagSet("e2b-local", flag.ContinueOnError)
	c.APIKey = getenv("E2B_API_KEY")
	c.Addr, c.SandboxAddr = "127.0.0.1:0", "127.0.0.1:0"
	c.MaxSandboxLifetime, c.MaxSandboxes = 24*time.Hour, 100
	flags.Var(checked{&c.Addr, checkAddr}, "addr", "`address` of the API and the status page, on loopback; port 0 is a free one")
	flags.Var(checked{&c.SandboxAddr, checkAddr}, "sandbox-addr", "`address` for traffic to the sandboxes, on loopback")
	flags.StringVar(&c.StateDir, "state-dir", "", "`directory` that keeps sandboxes, snapshots, volumes and the key for the next start (default: nothing is kept)")
	flags.StringVar(&c.Dir, "dir", "", "`directory` in which the files of the sandboxes are while it runs, without -state-dir (default: the system's for temporary files)")
	flags.Func("key-file", "`file` with the API key (default: the key is $E2B_API_KEY, else that of -state-dir, else a random one)", c.readKey)
	flags.Func("templates", "further `names` of templates, with commas between them", c.addTemplates)
	flags.Var(checked{&c.EnvdVersion, checkVersion}, "envd-version", "old `version` of envd that sandboxes have, such as 0.5.7 (default: that of new templates)")
	flags.Var(lifetime{&c.MaxSandboxLifetime}, "max-lifetime", "how long a sandbox can run without a pause: a `duration` such as 90m")
	flags.Var(count{&c.MaxSandboxes}, "max-sandboxes", "how many sandboxes can run at the same time: a `number`")
	flags.Var(size{&c.MemoryLimit}, "memory-limit", "how much memory the processes of a sandbox can have together: a `size` such as 512MiB (default: no limit)")
	flags.Var(count{&c.ProcessLimit}, "process-limit", "how many processes and threads a sandbox can have: a `number` (default: no limit)")
	flags.BoolVar(&c.HostNetwork, "host-network", false, "let sandboxes use the network of this machine")
	flags.BoolVar(&c.RequireIsolation, "require-isolation", false, "fail where sandboxes cannot be isolated from this machine")
	flags.BoolVar(&c.verbose, "v", false, "log every request")
	flags.BoolVar(&c.version, "version", false, "print the version and end")
	flags.VisitAll(func(f *flag.Flag) {
		if name := variable(f.Name); name != "" {
			f.Usage += "; $" + name
		}
	})
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "E2b-local serves an emulated E2B on this machine and prints the variables that clients need.\n\n"+
			"Usage: e2b-local [flags]\n\nA flag wins over its environment variable.\n\n")
		flags.PrintDefaults()
	}
	return flags
}

// readKey reads the key from a file. A key among the arguments would be seen by all
// users of this machine.
func (c *config) readKey(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if c.APIKey = strings.TrimSpace(string(text)); c.APIKey == "" {
		return errors.New("the file is empty")
	}
	return checkKey(c.APIKey)
}

var templateName = regexp.MustCompile(`^[a-z0-9_-]+$`)

func (c *config) addTemplates(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if !templateName.MatchString(name) {
			return fmt.Errorf("%q is no name of a template: a name has a-z, 0-9, - and _", name)
		}
		c.Templates = append(c.Templates, name)
	}
	return nil
}

// A checked is a flag whose text is checked.
type checked struct {
	text  *string
	check func(string) error
}

func (v checked) String() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

func (v checked) Set(text string) error {
	*v.text = text
	return v.check(text)
}

// checkAddr refuses addresses that other machines reach.
func checkAddr(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return err
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return errors.New("it is not an address on loopback, and no other is allowed")
	}
	return nil
}

var version = regexp.MustCompile(`^(0|[1-9]\d{0,3})(\.(0|[1-9]\d{0,3})){2}$`)

// newestEnvd is the newest version of envd that e2btest emulates.
const newestEnvd = "0.6.13"

func checkVersion(text string) error {
	switch {
	case !version.MatchString(text):
		return errors.New("it is no version such as 0.5.7")
	case isNewer(text, newestEnvd):
		return errors.New("the newest version that is emulated is " + newestEnvd)
	}
	return nil
}

// isNewer compares versions.
func isNewer(a, b string) bool {
	numbers := func(v string) (n []int) {
		for part := range strings.SplitSeq(v, ".") {
			i, _ := strconv.Atoi(part) // it is a number
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(numbers(a), numbers(b)) > 0
}

// A lifetime is a flag for at least a second.
type lifetime struct{ d *time.Duration }

func (v lifetime) String() string {
	if v.d == nil {
		return ""
	}
	return v.d.String()
}

func (v lifetime) Set(text string) (err error) {
	if *v.d, err = time.ParseDuration(text); err == nil && *v.d < time.Second {
		err = errors.New("it is below a second")
	}
	return err
}

// A count is a flag for at least one.
type count struct{ n *int }

func (v count) String() string {
	if v.n == nil || *v.n == 0 {
		return ""
	}
	return strconv.Itoa(*v.n)
}

func (v count) Set(text string) (err error) {
	if *v.n, err = strconv.Atoi(text); err != nil {
		return errors.New("it is no number")
	}
	if *v.n < 1 {
		return errors.New("it is below one")
	}
	return nil
}

// A size is a flag for bytes, with a unit.
type size struct{ n *int64 }

// minMemory is the least that e2btest allows.
const minMemory = 8 << 20

func (v size) String() string {
	if v.n == nil || *v.n == 0 {
		return ""
	}
	return strconv.FormatInt(*v.n>>20, 10) + "MiB"
}

func (v size) Set(text string) error {
	number, unit := text, int64(0)
	for suffix, n := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = rest, n
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case unit == 0 || err != nil || n > math.MaxInt64/unit:
		return errors.New("want a size such as 512MiB")
	case n < minMemory/unit:
		return errors.New("it is below 8MiB")
	}
	*v.n = n * unit
	return nil
}
