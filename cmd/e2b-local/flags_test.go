package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// environ makes an environment of pairs.
func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFlagsAndEnvironment(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("e2b_f11e\n"), 0o600))
	defaults := func() *config {
		return &config{Options: e2btest.Options{
			Addr: "127.0.0.1:0", SandboxAddr: "127.0.0.1:0", MaxSandboxLifetime: 24 * time.Hour, MaxSandboxes: 100, StatusPage: true,
		}}
	}
	c, err := parse(nil, environ(), io.Discard)
	require.NoError(t, err)
	require.Equal(t, defaults(), c)

	for _, test := range []struct {
		flag, value, env string
		want             func(c *config)
	}{
		{"addr", "localhost:1", "E2B_LOCAL_ADDR", func(c *config) { c.Addr = "localhost:1" }},
		{"sandbox-addr", "[::1]:2", "E2B_LOCAL_SANDBOX_ADDR", func(c *config) { c.SandboxAddr = "[::1]:2" }},
		{"state-dir", "/s", "E2B_LOCAL_STATE_DIR", func(c *config) { c.StateDir = "/s" }},
		{"dir", "/d", "E2B_LOCAL_DIR", func(c *config) { c.Dir = "/d" }},
		{"key-file", key, "E2B_LOCAL_KEY_FILE", func(c *config) { c.APIKey = "e2b_f11e" }},
		{"templates", "a,b-c", "E2B_LOCAL_TEMPLATES", func(c *config) { c.Templates = []string{"a", "b-c"} }},
		{"envd-version", "0.5.6", "E2B_LOCAL_ENVD_VERSION", func(c *config) { c.EnvdVersion = "0.5.6" }},
		{"max-lifetime", "90m", "E2B_LOCAL_MAX_LIFETIME", func(c *config) { c.MaxSandboxLifetime = 90 * time.Minute }},
		{"max-sandboxes", "7", "E2B_LOCAL_MAX_SANDBOXES", func(c *config) { c.MaxSandboxes = 7 }},
		{"memory-limit", "512MiB", "E2B_LOCAL_MEMORY_LIMIT", func(c *config) { c.MemoryLimit = 512 << 20 }},
		{"memory-limit", "3GiB", "E2B_LOCAL_MEMORY_LIMIT", func(c *config) { c.MemoryLimit = 3 << 30 }},
		{"process-limit", "200", "E2B_LOCAL_PROCESS_LIMIT", func(c *config) { c.ProcessLimit = 200 }},
		{"host-network", "true", "E2B_LOCAL_HOST_NETWORK", func(c *config) { c.HostNetwork = true }},
		{"require-isolation", "true", "E2B_LOCAL_REQUIRE_ISOLATION", func(c *config) { c.RequireIsolation = true }},
		{"v", "true", "E2B_LOCAL_V", func(c *config) { c.verbose = true }},
	} {
		want := defaults()
		test.want(want)
		byFlag, err := parse([]string{"-" + test.flag + "=" + test.value}, environ(test.env, "wrong if it is read"), io.Discard)
		require.NoError(t, err, test.flag)
		require.Equal(t, want, byFlag, test.flag)
		byEnv, err := parse(nil, environ(test.env, test.value), io.Discard)
		require.NoError(t, err, test.env)
		require.Equal(t, want, byEnv, test.env)
	}

	c, err = parse(nil, environ("E2B_API_KEY", "e2b_e0f"), io.Discard)
	require.NoError(t, err)
	require.Equal(t, "e2b_e0f", c.APIKey)
	c, err = parse([]string{"-key-file", key}, environ("E2B_API_KEY", "e2b_e0f"), io.Discard)
	require.NoError(t, err)
	require.Equal(t, "e2b_f11e", c.APIKey)
	c, err = parse([]string{"-version"}, environ(), io.Discard)
	require.NoError(t, err)
	require.True(t, c.version)
}

func TestBadValues(t *testing.T) {
	dir := t.TempDir()
	empty, words := filepath.Join(dir, "empty"), filepath.Join(dir, "words")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(words, []byte("two words"), 0o600))
	for _, test := range []struct{ flag, env, value, say string }{
		{"addr", "E2B_LOCAL_ADDR", "0.0.0.0:0", "it is not an address on loopback, and no other is allowed"},
		{"addr", "E2B_LOCAL_ADDR", "nowhere", "address nowhere: missing port in address"},
		{"sandbox-addr", "E2B_LOCAL_SANDBOX_ADDR", "example.com:1", "it is not an address on loopback, and no other is allowed"},
		{"key-file", "E2B_LOCAL_KEY_FILE", empty, "the file is empty"},
		{"key-file", "E2B_LOCAL_KEY_FILE", words, "the key holds other than visible ASCII characters"},
		{"key-file", "E2B_LOCAL_KEY_FILE", filepath.Join(dir, "none"), "no such file or directory"},
		{"templates", "E2B_LOCAL_TEMPLATES", "a b", `"a b" is no name of a template: a name has a-z, 0-9, - and _`},
		{"templates", "E2B_LOCAL_TEMPLATES", "a,", `"" is no name of a template`},
		{"envd-version", "E2B_LOCAL_ENVD_VERSION", "latest", "it is no version such as 0.5.7"},
		{"envd-version", "E2B_LOCAL_ENVD_VERSION", "0.6.14", "the newest version that is emulated is 0.6.13"},
		{"envd-version", "E2B_LOCAL_ENVD_VERSION", "0.10.0", "the newest version that is emulated is 0.6.13"},
		{"max-lifetime", "E2B_LOCAL_MAX_LIFETIME", "1", "missing unit in duration"},
		{"max-lifetime", "E2B_LOCAL_MAX_LIFETIME", "0s", "it is below a second"},
		{"max-sandboxes", "E2B_LOCAL_MAX_SANDBOXES", "many", "it is no number"},
		{"max-sandboxes", "E2B_LOCAL_MAX_SANDBOXES", "0", "it is below one"},
		{"memory-limit", "E2B_LOCAL_MEMORY_LIMIT", "512", "want a size such as 512MiB"},
		{"memory-limit", "E2B_LOCAL_MEMORY_LIMIT", "muchGiB", "want a size such as 512MiB"},
		{"memory-limit", "E2B_LOCAL_MEMORY_LIMIT", "9000000000GiB", "want a size such as 512MiB"},
		{"memory-limit", "E2B_LOCAL_MEMORY_LIMIT", "7MiB", "it is below 8MiB"},
		{"memory-limit", "E2B_LOCAL_MEMORY_LIMIT", "-1GiB", "it is below 8MiB"},
		{"process-limit", "E2B_LOCAL_PROCESS_LIMIT", "0", "it is below one"},
		{"host-network", "E2B_LOCAL_HOST_NETWORK", "perhaps", "parse error"},
	} {
		_, err := parse(nil, environ(test.env, test.value), io.Discard)
		require.ErrorContains(t, err, test.env+": invalid value \""+test.value+"\": ")
		require.ErrorContains(t, err, test.say)
		var stderr bytes.Buffer
		_, err = parse([]string{"-" + test.flag + "=" + test.value}, environ(), &stderr)
		require.ErrorAs(t, err, new(usageError))
		require.Regexp(t, `^invalid (boolean )?value "`, err.Error())
		require.ErrorContains(t, err, "-"+test.flag+": ")
		require.ErrorContains(t, err, test.say)
		require.Empty(t, stderr.String(), "no help")
	}
	_, err := parse(nil, environ("E2B_API_KEY", "two words"), io.Discard)
	require.EqualError(t, err, "E2B_API_KEY: the key holds other than visible ASCII characters")
}

// TestNewestEnvd: it is that of new templates.
func TestNewestEnvd(t *testing.T) {
	_, client := e2btest.New(t, &e2btest.Options{Run: func(context.Context, *e2btest.Command) int { return 0 }})
	sbx, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, newestEnvd, sbx.EnvdVersion())
}

// TestHelp names all flags with their variables, and asks for no key.
func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	_, err := parse([]string{"-h"}, environ("E2B_API_KEY", "e2b_5ec4e7"), &stderr)
	require.ErrorIs(t, err, flag.ErrHelp)
	help := stderr.String()
	require.NotContains(t, help, "e2b_5ec4e7")
	count := 0
	new(config).flags(environ()).VisitAll(func(f *flag.Flag) {
		require.Contains(t, help, "  -"+f.Name)
		require.Contains(t, help, variable(f.Name))
		count++
	})
	require.Equal(t, 15, count)
}
