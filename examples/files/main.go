// Files moves files between a program and a sandbox.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing/fstest"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

func main() { example.Main("base", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
	// A tree goes in as one archive. Any fs.FS will do: os.DirFS, an embed.FS, a zip.
	site := fstest.MapFS{
		"index.html":    {Data: []byte("<h1>hello</h1>\n")},
		"img/logo.svg":  {Data: []byte("<svg/>\n")},
		"bin/deploy.sh": {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
	}
	if err := sbx.Files.CopyIn(ctx, site, "site", nil); err != nil {
		return err
	}
	// A reader of any length, in constant memory. Others see the old file or the new.
	lines := strings.NewReader(strings.Repeat("2026-11-29 all is well\n", 100_000))
	err := sbx.Files.WriteFrom(ctx, "site/app.log", lines, &e2b.WriteOptions{Atomic: true, Metadata: map[string]string{"origin": "example"}})
	if err != nil {
		return err
	}
	// The directory of the sandbox is an fs.FS too.
	err = fs.WalkDir(sbx.Files.FS(ctx, "site"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Printf("%v %8d %s\n", info.Mode(), info.Size(), name)
		}
		return err
	})
	if err != nil {
		return err
	}
	// A download goes on by itself where its connection breaks.
	log, err := sbx.Files.Open(ctx, "site/app.log", nil)
	if err != nil {
		return err
	}
	defer log.Close()
	n, err := io.Copy(io.Discard, log)
	fmt.Println("read", n, "bytes of", log.Size())
	if _, missing := sbx.Files.Read(ctx, "nowhere", nil); !errors.Is(missing, fs.ErrNotExist) {
		return missing
	}
	return err
}
