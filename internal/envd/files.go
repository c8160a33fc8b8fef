package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

func (c *Client) fileURL(path, user string) string {
	u := transport.Join(c.cfg.BaseURL, "files")
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Download is the contents of a file on their way. The caller must Close it.
type Download struct {
	Size int64 // -1: unknown

	body io.ReadCloser
	r    io.Reader
	ctx  context.Context
	idle *transport.Idle
}

// Download opens a file. ctx bounds the reading too; limit, if > 0, is how long
// the server may be silent.
func (c *Client) Download(ctx context.Context, limit time.Duration, path, user string) (*Download, error) {
	ctx, idle := transport.WithIdle(ctx, limit)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.fileURL(path, user), nil)
	if err != nil {
		idle.Release()
		return nil, transport.Cause(err)
	}
	c.header(req.Header, "")
	// Not every transport is ours, and envd compresses at a fortieth of the speed.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := c.send(ctx, req)
	if err != nil {
		idle.Release()
		return nil, err
	}
	if resp.Close && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 {
		// Its end is that of the connection, as after a cut.
		_ = resp.Body.Close()
		idle.Release()
		return nil, errNoLength
	}
	return &Download{Size: resp.ContentLength, body: resp.Body, r: idle.Reader(resp.Body), ctx: ctx, idle: idle}, nil
}

var errNoLength = errors.New("an answer that does not say where it ends")

// Read reads the file. An end before Size bytes is io.ErrUnexpectedEOF.
func (d *Download) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = causeOf(d.ctx, err)
	}
	return n, err
}

// Close lets go of the connection.
func (d *Download) Close() error {
	d.idle.Release()
	return d.body.Close()
}

// Upload writes a file from what body returns, which may be read more than once
// where net/http makes sure that nothing had been sent. size is its length, or
// -1. raw sends the
// bytes alone, which envd takes since 0.5.7; else they travel as a form. limit,
// if > 0, is how long nothing may move.
func (c *Client) Upload(ctx context.Context, limit time.Duration, path, user string, body func() io.Reader, size int64, raw bool) error {
	ctx, idle := transport.WithIdle(ctx, limit)
	defer idle.Release()
	contentType := "application/octet-stream"
	if !raw {
		var head, tail []byte
		head, tail, contentType = form(path)
		contents := body
		body = func() io.Reader {
			return io.MultiReader(bytes.NewReader(head), contents(), bytes.NewReader(tail))
		}
		if size >= 0 {
			size += int64(len(head) + len(tail))
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.fileURL(path, user), idle.Reader(body()))
	if err != nil {
		return transport.Cause(err)
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(idle.Reader(body())), nil }
	req.ContentLength = size
	if size == 0 {
		req.Body, req.GetBody = http.NoBody, nil
	}
	c.header(req.Header, "")
	req.Header.Set("Content-Type", contentType)
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

// send makes a request and turns an answer that is no success into an error.
func (c *Client) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, causeOf(ctx, transport.Cause(err))
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _, _ := transport.ReadBody(resp.Body, transport.MaxErrorBody)
	return nil, transport.NewStatusError(resp.StatusCode, req.Header, resp.Header, body)
}
