package e2b_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// The benchmarks of this file make each call twice: through the SDK, and written
// directly on net/http against the same emulator. To compare them:
//
//	go test -run '^$' -bench 'Call' -count 10 . | benchstat -col /by -
func BenchmarkCall(b *testing.B) {
	server, client := e2btest.New(b, nil)
	sbx, err := client.Create(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	token := sbx.Record().EnvdAccessToken
	d := &direct{
		api: server.APIURL(), sandboxes: server.SandboxURL(), key: server.APIKey(), id: sbx.ID(), token: token.Reveal(),
		http: &http.Client{Transport: &http.Transport{DisableCompression: true}},
	}
	defer d.http.CloseIdleConnections()
	kib := bytes.Repeat([]byte("0123456789abcdef"), 64)

	both(b, "Connect",
		func() error { _, err := client.Connect(b.Context(), sbx.ID(), nil); return err },
		d.connect)
	both(b, "RunTrue",
		func() error { _, err := sbx.Commands.Run(b.Context(), "true", nil); return err },
		func() error { return d.run("true") })
	both(b, "Write1KiB",
		func() error { return sbx.Files.Write(b.Context(), "bench", kib, nil) },
		func() error { return d.write("bench", kib) })
	both(b, "Read1KiB",
		func() error { _, err := sbx.Files.Read(b.Context(), "bench", nil); return err },
		func() error { return d.read("bench", len(kib)) })
}

func both(b *testing.B, name string, sdk, direct func() error) {
	for _, by := range []struct {
		name string
		call func() error
	}{{"direct", direct}, {"sdk", sdk}} {
		b.Run(name+"/by="+by.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := by.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// direct is what a program without an SDK would write.
type direct struct {
	api, sandboxes, key, id, token string
	http                           *http.Client
}

func (d *direct) do(method, url string, body []byte, contentType string) (*http.Response, error) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("X-API-Key", d.key)
	req.Header.Set("E2b-Sandbox-Id", d.id)
	req.Header.Set("E2b-Sandbox-Port", "49983")
	req.Header.Set("X-Access-Token", d.token)
	resp, err := d.http.Do(req)
	if err == nil && resp.StatusCode >= 300 {
		resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	return resp, err
}

func (d *direct) connect() error {
	resp, err := d.do(http.MethodPost, d.api+"/sandboxes/"+d.id+"/connect", []byte(`{"timeout":300}`), "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var out map[string]any
	return json.NewDecoder(resp.Body).Decode(&out)
}

func (d *direct) write(path string, data []byte) error {
	resp, err := d.do(http.MethodPost, d.sandboxes+"/files?path="+path, data, "application/octet-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (d *direct) read(path string, size int) error {
	resp, err := d.do(http.MethodGet, d.sandboxes+"/files?path="+path, nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && len(b) != size {
		err = fmt.Errorf("%d bytes", len(b))
	}
	return err
}

func (d *direct) run(cmd string) error {
	var process, msg []byte
	process = protowire.AppendTag(process, 1, protowire.BytesType)
	process = protowire.AppendString(process, "/bin/bash")
	for _, arg := range []string{"-l", "-c", cmd} {
		process = protowire.AppendTag(process, 2, protowire.BytesType)
		process = protowire.AppendString(process, arg)
	}
	msg = protowire.AppendTag(msg, 1, protowire.BytesType)
	msg = protowire.AppendBytes(msg, process)
	msg = protowire.AppendTag(msg, 4, protowire.VarintType) // no stdin
	msg = protowire.AppendVarint(msg, 0)
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg)))
	resp, err := d.do(http.MethodPost, d.sandboxes+"/process.Process/Start", append(body, msg...), "application/connect+proto")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var head [5]byte
	ended := false
	for {
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			return err
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, frame); err != nil {
			return err
		}
		if head[0]&2 != 0 {
			_, err := io.Copy(io.Discard, resp.Body)
			if err == nil && (!ended || string(frame) != "{}") {
				err = fmt.Errorf("ended with %s", frame)
			}
			return err
		}
		event, _ := protowire.ConsumeBytes(frame[1:])
		num, _, _ := protowire.ConsumeTag(event)
		ended = ended || num == 3
	}
}
