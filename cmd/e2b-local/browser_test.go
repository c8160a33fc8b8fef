//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	e2b "github.com/seed-09a7379d/e2b-go"
)

// browser finds Chromium.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("there is no Chromium")
	}
	t.Skip("this machine has no Chromium to show the page")
	return ""
}

// show returns the document that a browser makes of a page.
func show(t *testing.T, browser, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--dump-dom", url)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(out)
}

var (
	tableRow  = regexp.MustCompile(`(?s)<tr id="(\w+)".*?</tr>`)
	tableCell = regexp.MustCompile(`(?s)<td[^>]*>(.*?)</td>`)
	anyTag    = regexp.MustCompile(`<[^>]*>`)
)

// rows returns the texts in the rows of the page, by sandbox.
func rows(page string) map[string][]string {
	all := make(map[string][]string)
	for _, row := range tableRow.FindAllStringSubmatch(page, -1) {
		var cells []string
		for _, cell := range tableCell.FindAllStringSubmatch(row[0], -1) {
			cells = append(cells, html.UnescapeString(anyTag.ReplaceAllString(cell[1], "")))
		}
		all[row[1]] = cells
	}
	return all
}

func TestStatusPageInABrowser(t *testing.T) {
	chromium := browser(t)
	s := start(t, build(t), "E2B_API_KEY=e2b_5ec4e7")
	client := s.client(t)
	require.Contains(t, show(t, chromium, s.env["E2B_API_URL"]), "There is no sandbox yet.")

	const nasty = `<img src=x onerror="document.body.innerHTML='taken over'">`
	running, err := client.Create(t.Context(), &e2b.CreateOptions{Timeout: time.Hour, NoToken: true, Metadata: map[string]string{"note": nasty}})
	require.NoError(t, err)
	paused, err := client.Create(t.Context(), &e2b.CreateOptions{Template: "code-interpreter", NoToken: true})
	require.NoError(t, err)
	_, err = paused.Pause(t.Context(), nil)
	require.NoError(t, err)
	killed, err := client.Create(t.Context(), nil)
	require.NoError(t, err)
	_, err = killed.Kill(t.Context())
	require.NoError(t, err)
	info, err := running.Info(t.Context())
	require.NoError(t, err)
	out, to := io.Pipe()
	command, err := running.Commands.Start(t.Context(), "exec cat - /secret", &e2b.RunOptions{KeepStdin: true, Stdout: to})
	require.NoError(t, err)
	_, err = command.Write([]byte("x"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1)) // so it is cat by now
	require.NoError(t, err)

	page := show(t, chromium, s.env["E2B_API_URL"])
	require.Contains(t, page, "1 running, 1 paused, 1 gone")
	shown := rows(page)
	require.Len(t, shown, 3, page)
	at := func(id string, column int) string { return shown[id][column] }
	for column, want := range []string{running.ID(), "running", "base"} {
		require.Equal(t, want, at(running.ID(), column))
	}
	require.Equal(t, "ends at "+info.EndAt.Local().Format(time.DateTime), at(running.ID(), 4))
	require.Equal(t, fmt.Sprintf("%d cat", command.PID()), at(running.ID(), 7), "without its arguments")
	require.Contains(t, shown[running.ID()], "note="+nasty, "it is shown and does nothing")
	require.Equal(t, "paused", at(paused.ID(), 1))
	require.Equal(t, "code-interpreter", at(paused.ID(), 2))
	require.True(t, strings.HasPrefix(at(paused.ID(), 4), "paused at "))
	require.Equal(t, "gone", at(killed.ID(), 1))
	require.NotContains(t, page, "e2b_5ec4e7")

	require.NoError(t, command.Close())
	require.NoError(t, to.Close())
	s.end(t, syscall.SIGTERM)
	require.NotContains(t, s.stderr.String(), "no such route", "the browser asked the API for nothing")
}
