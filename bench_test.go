package e2b_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	e2b "github.com/seed-09a7379d/e2b-go"
	"github.com/seed-09a7379d/e2b-go/e2btest"
)

// The benchmarks of this file do each thing twice: through the SDK, and written
// directly on net/http with a codec by hand, against the same emulator in another
// process. To compare them:
//
//	make bench BENCH=Against
func BenchmarkAgainst(b *testing.B) {
	client, d := against(b)
	sbx, err := client.Create(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	token := sbx.Record().EnvdAccessToken
	d.id, d.token = sbx.ID(), token.Reveal()
	kib := bytes.Repeat([]byte("0123456789abcdef"), 64)
	ctx := b.Context()

	both(b, "Connect", 0,
		func() error { _, err := client.Connect(ctx, sbx.ID(), nil); return err },
		d.connect)
	both(b, "RunTrue", 0,
		func() error { _, err := sbx.Commands.Run(ctx, "true", nil); return err },
		func() error { return d.run("true", io.Discard) })
	both(b, "RunTrue16", 0,
		func() error {
			return times(16, func() error { _, err := sbx.Commands.Run(ctx, "true", nil); return err })
		},
		func() error { return times(16, func() error { return d.run("true", io.Discard) }) })
	both(b, "Stdout100MB", 100_000_000,
		func() error {
			_, err := sbx.Commands.Run(ctx, "head -c 100000000 /dev/zero", &e2b.RunOptions{Stdout: &sampler{}})
			return err
		},
		func() error { return d.run("head -c 100000000 /dev/zero", &sampler{}) })
	both(b, "Collect16MB", 16_000_000,
		func() error {
			res, err := sbx.Commands.Run(ctx, "head -c 16000000 /dev/zero", nil)
			if err == nil && len(res.Stdout) != 16_000_000 {
				err = errors.New("not all of it")
			}
			return err
		},
		func() error {
			var all bytes.Buffer
			err := d.run("head -c 16000000 /dev/zero", &all)
			if err == nil && all.Len() != 16_000_000 {
				err = errors.New("not all of it")
			}
			return err
		})
	both(b, "WriteRead1KiB", 0,
		func() error {
			if err := sbx.Files.Write(ctx, "bench", kib, nil); err != nil {
				return err
			}
			_, err := sbx.Files.Read(ctx, "bench", nil)
			return err
		},
		func() error {
			if err := d.write("bench", bytes.NewReader(kib)); err != nil {
				return err
			}
			return d.read("bench", int64(len(kib)), &bytes.Buffer{})
		})
	const large = 256 << 20
	both(b, "Upload256MiB", large,
		func() error { return sbx.Files.WriteFrom(ctx, "large", &zeros{left: large}, nil) },
		func() error { return d.write("large", &zeros{left: large}) })
	both(b, "Download256MiB", large,
		func() error {
			r, err := sbx.Files.Open(ctx, "large", nil)
			if err != nil {
				return err
			}
			defer r.Close()
			n, err := io.Copy(&sampler{}, r)
			if err == nil && n != large {
				err = errors.New("not all of it")
			}
			return err
		},
		func() error { return d.read("large", large, &sampler{}) })
	if _, err := sbx.Commands.Run(ctx, "mkdir many && cd many && seq -f name%g 2000 | xargs touch", nil); err != nil {
		b.Fatal(err)
	}
	both(b, "List2000", 0,
		func() error {
			list, err := sbx.Files.List(ctx, "many", nil)
			if err == nil && len(list) != 2000 {
				err = errors.New("not all of it")
			}
			return err
		},
		func() error { return d.list("many", 2000) })
}

// against starts the emulator in another process.
func against(b *testing.B) (*e2b.Client, *direct) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchServerEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	d := &direct{http: &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}}}
	if _, err := fmt.Fscanln(out, &d.api, &d.sandboxes, &d.key); err != nil {
		b.Fatal(err)
	}
	client, err := e2b.NewClient(&e2b.ClientOptions{APIKey: d.key, APIURL: d.api, SandboxURL: d.sandboxes})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		client.CloseIdleConnections()
		d.http.CloseIdleConnections()
		_ = in.Close()
		_ = cmd.Wait()
	})
	return client, d
}

// times calls do n times at once.
func times(n int, do func() error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = do() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A sampler takes all and looks at the memory now and then.
type sampler struct{ n int64 }

var peak uint64 // of the benchmark that runs

func (s *sampler) Write(p []byte) (int, error) {
	if s.n>>23 != (s.n+int64(len(p)))>>23 {
		samplePeak()
	}
	s.n += int64(len(p))
	return len(p), nil
}

func samplePeak() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	peak = max(peak, m.HeapInuse+m.StackInuse)
}

type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), z.left))
	clear(p[:n])
	if z.left>>23 != (z.left-int64(n))>>23 {
		samplePeak()
	}
	z.left -= int64(n)
	return n, nil
}

// A thousand commands, a hundred at a time, over fifty sandboxes.
func BenchmarkThousandCommands(b *testing.B) {
	server, client := e2btest.New(b, nil)
	var dials atomic.Int64
	opts := server.ClientOptions()
	opts.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	counted, err := e2b.NewClient(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(counted.CloseIdleConnections)
	var sandboxes []*e2b.Sandbox
	for range 50 {
		sbx, err := client.Create(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if sbx, err = counted.FromRecord(sbx.Record()); err != nil {
			b.Fatal(err)
		}
		sandboxes = append(sandboxes, sbx)
	}
	for b.Loop() {
		var next atomic.Int64
		err := times(100, func() error {
			for {
				i := int(next.Add(1))
				if i > 1000 {
					return nil
				}
				if _, err := sandboxes[i%50].Commands.Run(b.Context(), "true", nil); err != nil {
					return err
				}
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(dials.Load()), "connections")
}

// Many small files over a link with a delay: a tree, against one request after
// another.
func BenchmarkTreeOverSlowLink(b *testing.B) {
	const files, delay = 10_000, 20 * time.Millisecond
	server, _ := e2btest.New(b, nil)
	opts := server.ClientOptions()
	rt := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	opts.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return rt.RoundTrip(r)
	})
	b.Cleanup(rt.CloseIdleConnections)
	client, err := e2b.NewClient(opts)
	if err != nil {
		b.Fatal(err)
	}
	sbx, err := client.Create(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	tree := fstest.MapFS{}
	for i := range files {
		tree[fmt.Sprintf("d%02d/f%d", i%100, i)] = &fstest.MapFile{Data: bytes.Repeat([]byte("x"), i%1000)}
	}
	b.Run("one-by-one", func(b *testing.B) { // of which a hundredth is done
		for b.Loop() {
			for i := range files / 100 {
				if err := sbx.Files.Write(b.Context(), fmt.Sprint("single/", i), tree["d01/f1"].Data, nil); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N), "s/10000-files")
	})
	b.Run("CopyIn", func(b *testing.B) {
		for b.Loop() {
			if err := sbx.Files.CopyIn(b.Context(), tree, "tree", nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/10000-files")
	})
	b.Run("CopyOut", func(b *testing.B) {
		for b.Loop() {
			if err := sbx.Files.CopyOut(b.Context(), "tree", b.TempDir(), nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/10000-files")
	})
}

func both(b *testing.B, name string, size int64, sdk, direct func() error) {
	for _, by := range []struct {
		name string
		call func() error
	}{{"direct", direct}, {"sdk", sdk}} {
		b.Run(name+"/by="+by.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(size)
			runtime.GC()
			peak = 0
			samplePeak()
			start := peak
			for b.Loop() {
				if err := by.call(); err != nil {
					b.Fatal(err)
				}
			}
			if size > 0 {
				b.ReportMetric(float64(peak-start)/(1<<20), "MiB-peak")
			}
		})
	}
}

// direct is what a program without an SDK would write.
type direct struct {
	api, sandboxes, key, id, token string
	http                           *http.Client
}

func (d *direct) do(method, url string, body io.Reader, contentType string) (*http.Response, error) {
	req, err := http.NewRequest(method, url, body)
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
	resp, err := d.do(http.MethodPost, d.api+"/sandboxes/"+d.id+"/connect", strings.NewReader(`{"timeout":300}`), "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var out map[string]any
	return json.NewDecoder(resp.Body).Decode(&out)
}

func (d *direct) write(path string, data io.Reader) error {
	resp, err := d.do(http.MethodPost, d.sandboxes+"/files?path="+path, data, "application/octet-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (d *direct) read(path string, size int64, to io.Writer) error {
	resp, err := d.do(http.MethodGet, d.sandboxes+"/files?path="+path, nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(to, resp.Body)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// list decodes what the SDK does of each entry.
func (d *direct) list(path string, want int) error {
	msg := protowire.AppendTag(nil, 1, protowire.BytesType)
	msg = protowire.AppendString(msg, path)
	resp, err := d.do(http.MethodPost, d.sandboxes+"/filesystem.Filesystem/ListDir", bytes.NewReader(msg), "application/proto")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var list []e2b.FileInfo
	for len(b) > 0 {
		_, _, n := protowire.ConsumeTag(b)
		entry, m := protowire.ConsumeBytes(b[n:])
		b = b[n+m:]
		var info e2b.FileInfo
		for len(entry) > 0 {
			num, typ, n := protowire.ConsumeTag(entry)
			m := protowire.ConsumeFieldValue(num, typ, entry[n:])
			value := entry[n : n+m]
			entry = entry[n+m:]
			text := func() string { v, _ := protowire.ConsumeString(value); return v }
			number := func() uint64 { v, _ := protowire.ConsumeVarint(value); return v }
			switch num {
			case 1:
				info.Name = text()
			case 3:
				info.Path = text()
			case 4:
				info.Size = int64(number())
			case 5:
				info.Mode = fs.FileMode(number())
			case 7:
				info.Owner = text()
			case 8:
				info.Group = text()
			case 9:
				at, _ := protowire.ConsumeBytes(value)
				_, _, n := protowire.ConsumeTag(at)
				seconds, _ := protowire.ConsumeVarint(at[n:])
				info.ModTime = time.Unix(int64(seconds), 0)
			}
		}
		list = append(list, info)
	}
	if len(list) != want {
		return fmt.Errorf("%d entries", len(list))
	}
	return nil
}

func (d *direct) run(cmd string, to io.Writer) error {
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
	resp, err := d.do(http.MethodPost, d.sandboxes+"/process.Process/Start", bytes.NewReader(append(body, msg...)), "application/connect+proto")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var head [5]byte
	ended := false
	var buf []byte
	for {
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			return err
		}
		size := int(binary.BigEndian.Uint32(head[1:]))
		if size > cap(buf) {
			buf = make([]byte, size)
		}
		frame := buf[:size]
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
		num, _, n := protowire.ConsumeTag(event)
		ended = ended || num == 3
		if num != 2 {
			continue
		}
		data, _ := protowire.ConsumeBytes(event[n:])
		_, _, n = protowire.ConsumeTag(data)
		out, _ := protowire.ConsumeBytes(data[n:])
		if _, err := to.Write(out); err != nil {
			return err
		}
	}
}
