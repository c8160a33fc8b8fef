package envd

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Upload is a file to write.
type Upload struct {
	Path, User string
	Body       io.Reader
	// Again returns the same contents once more, for net/http to send where it is
	// sure that nothing had been. nil: they cannot be had again, and reading them may
	// take any time.
	Again    func() io.Reader
	Size     int64 // -1: unknown
	Raw      bool  // the bytes alone, which envd takes since 0.5.7; else as a form
	Gzip     bool  // compressed on the way
	Metadata map[string]string
}

// Upload writes a file. limit, if > 0, is how long the server may be waited for
// without anything moving. A Read of the caller's that blocks does not keep Upload
// from ending with ctx; it may then still be under way, while no other follows.
func (c *Client) Upload(ctx context.Context, limit time.Duration, u *Upload) error {
	ctx, idle := transport.WithIdle(ctx, limit)
	defer idle.Release()
	src := transport.NewSource()
	req, err := c.uploadRequest(ctx, u, func(r io.Reader) io.Reader { return idle.ToWire(src.Reader(r)) })
	if err != nil {
		return transport.Cause(err)
	}
	return src.Send(ctx, u.Size, u.Again != nil, func() error { return c.finishUpload(ctx, req) })
}

func (c *Client) uploadRequest(ctx context.Context, u *Upload, wrap func(io.Reader) io.Reader) (*http.Request, error) {
	size, contentType := u.Size, "application/octet-stream"
	body := func(contents io.Reader) io.Reader { return wrap(contents) }
	if !u.Raw {
		var head, tail []byte
		head, tail, contentType = form(u.Path)
		body = func(contents io.Reader) io.Reader {
			return io.MultiReader(bytes.NewReader(head), wrap(contents), bytes.NewReader(tail))
		}
		if size >= 0 {
			size += int64(len(head) + len(tail))
		}
	}
	if u.Gzip {
		plain := body
		body = func(contents io.Reader) io.Reader { return newZipper(plain(contents)) }
		size = -1
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.fileURL(u.Path, u.User), body(u.Body))
	if err != nil {
		return nil, err
	}
	if u.Again != nil {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body(u.Again())), nil }
	}
	req.ContentLength = size
	if size == 0 {
		req.Body, req.GetBody = http.NoBody, nil
	}
	maps.Copy(req.Header, c.headers)
	req.Header.Set("Content-Type", contentType)
	if u.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for key, value := range u.Metadata {
		req.Header.Set("X-Metadata-"+key, value)
	}
	return req, nil
}

func (c *Client) finishUpload(ctx context.Context, req *http.Request) error {
	resp, err := c.send(ctx, req)
	if err != nil {
		return err
	}
	// The list of what was written says nothing new; read it for the connection.
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, transport.MaxErrorBody))
	_ = resp.Body.Close()
	if err != nil {
		return causeOf(ctx, err)
	}
	return nil
}

// form returns what stands before and behind the contents in a form of one file.
func form(path string) (head, tail []byte, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", multipart.FileContentDisposition("file", path))
	h.Set("Content-Type", "application/octet-stream")
	_, _ = w.CreatePart(h) // a buffer takes everything
	n := b.Len()
	_ = w.Close()
	return b.Bytes()[:n:n], b.Bytes()[n:], w.FormDataContentType()
}

// A zipper compresses what it reads.
type zipper struct {
	r   io.Reader
	buf bytes.Buffer // compressed, not yet read
	w   *gzip.Writer
	in  []byte
	err error
}

func newZipper(r io.Reader) *zipper {
	z := &zipper{r: r, in: make([]byte, 32<<10)}
	// The next level takes five times as long for a few percent.
	z.w, _ = gzip.NewWriterLevel(&z.buf, gzip.BestSpeed) // the level is one
	return z
}

func (z *zipper) Read(p []byte) (int, error) {
	for z.buf.Len() == 0 && z.err == nil {
		n, err := z.r.Read(z.in)
		_, _ = z.w.Write(z.in[:n]) // a buffer takes everything
		if err != nil {
			// A wrapped io.EOF is an error of the source's, and must not end the stream well.
			if z.err = err; err == io.EOF {
				_ = z.w.Close()
			}
		}
	}
	if z.buf.Len() == 0 {
		return 0, z.err
	}
	return z.buf.Read(p)
}
