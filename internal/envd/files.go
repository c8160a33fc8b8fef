package envd

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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

// DownloadOptions says what of a file to fetch, and how.
type DownloadOptions struct {
	User string
	Gzip bool // compressed on the way, where the server likes to
	// From is where to begin, if IfRange is not "", which is the Last-Modified of
	// what came until then. A file that has changed since is ErrChanged.
	From    int64
	IfRange string
}

// Download is the contents of a file on their way. The caller must Close it.
type Download struct {
	Size         int64 // of what comes; -1: unknown
	LastModified string
	Date         string // of the answer

	body io.ReadCloser
	r    io.Reader
	ctx  context.Context
	idle *transport.Idle
}

var (
	errNoLength = errors.New("an answer that does not say where it ends")
	errNotWhole = errors.New("an answer that is not the whole file")
	errEncoding = errors.New("an answer in an encoding that was not asked for")
	// ErrChanged is returned when the rest of a file is not there any more.
	ErrChanged = errors.New("the file changed meanwhile")
)

// Download opens a file. ctx bounds the reading too; limit, if > 0, is how long
// the server may be silent while it is waited for.
func (c *Client) Download(ctx context.Context, limit time.Duration, path string, o *DownloadOptions) (*Download, error) {
	ctx, idle := transport.WithIdle(ctx, limit)
	d, err := c.download(ctx, idle, path, o)
	if err != nil {
		idle.Release()
		return nil, err
	}
	idle.Stop()
	return d, nil
}

func (c *Client) download(ctx context.Context, idle *transport.Idle, path string, o *DownloadOptions) (*Download, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.fileURL(path, o.User), nil)
	if err != nil {
		return nil, transport.Cause(err)
	}
	maps.Copy(req.Header, c.headers)
	// Not every transport is ours, and envd compresses at a fortieth of the speed.
	req.Header.Set("Accept-Encoding", "identity")
	if o.Gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if o.IfRange != "" {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(o.From, 10)+"-")
		req.Header.Set("If-Range", o.IfRange)
	}
	resp, err := c.send(ctx, req)
	if err != nil {
		return nil, err
	}
	d := &Download{
		Size: resp.ContentLength, LastModified: resp.Header.Get("Last-Modified"), Date: resp.Header.Get("Date"),
		body: resp.Body, r: idle.FromWire(resp.Body), ctx: ctx, idle: idle,
	}
	if err := d.accept(resp, o); err != nil {
		_ = resp.Body.Close()
		return nil, causeOf(ctx, err)
	}
	return d, nil
}

// accept checks that an answer is what was asked for.
func (d *Download) accept(resp *http.Response, o *DownloadOptions) error {
	if resp.Close && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 {
		return errNoLength // its end is that of the connection, as after a cut
	}
	switch {
	case o.IfRange != "":
		begin, _, ok := contentRange(resp.Header.Get("Content-Range"))
		modified := resp.Header.Get("Last-Modified")
		if resp.StatusCode != http.StatusPartialContent || !ok || begin != o.From || modified != "" && modified != o.IfRange {
			return ErrChanged
		}
	case resp.StatusCode != http.StatusOK:
		return errNotWhole
	}
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case encoding == "" || encoding == "identity":
		return nil
	case encoding != "gzip" || !o.Gzip:
		return errEncoding
	}
	d.Size = -1
	zipped, err := gzip.NewReader(d.r)
	d.r = zipped
	return err
}

// contentRange reads the header of a partial answer.
func contentRange(s string) (begin, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(s, "/")
	first, last, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, false
	}
	begin, err1 := strconv.ParseInt(first, 10, 64)
	end, err2 := strconv.ParseInt(last, 10, 64)
	total, err3 := strconv.ParseInt(size, 10, 64)
	return begin, total, err1 == nil && err2 == nil && err3 == nil && begin >= 0 && begin <= end && end < total
}

// Read reads the file. An end before Size bytes is io.ErrUnexpectedEOF.
func (d *Download) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if errors.Is(err, io.EOF) {
		if cut := transport.FalseEnd(d.ctx); cut != nil {
			err = cut
		}
	} else if err != nil {
		err = causeOf(d.ctx, err)
	}
	return n, err
}

// Close lets go of the connection.
func (d *Download) Close() error {
	d.idle.Release()
	return d.body.Close()
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
