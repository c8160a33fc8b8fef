// Code has a sandbox draw a plot and saves it as a PNG.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/examples/internal/example"
)

//go:embed plot.py
var plot string

func main() { example.Main("code-interpreter", run) }

func run(ctx context.Context, _ *e2b.Client, sbx *e2b.Sandbox) error {
	exec, err := sbx.RunCode(ctx, plot, nil)
	if err != nil {
		return err
	}
	if exec.Error != nil {
		return exec.Error
	}
	data := exec.PNG()
	if data == nil {
		return errors.New("the code gave no picture")
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	file := filepath.Join(os.TempDir(), "e2b-go-plot.png")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	fmt.Printf("saved a plot of %d x %d pixels as %s\n", picture.Bounds().Dx(), picture.Bounds().Dy(), file)

	// Variables persist from call to call, also over pause and connect.
	exec, err = sbx.RunCode(ctx, "max(values)", nil)
	if err != nil {
		return err
	}
	fmt.Println("highest value:", exec.Text())
	return nil
}
