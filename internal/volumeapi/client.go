// Package volumeapi speaks to the service that serves what is in volumes. None of
// its exchanges could be recorded: routes and fields are those of E2B's published
// JavaScript SDK.
package volumeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// Client calls the service for one volume. It is safe for concurrent use.
type Client struct {
	Base      *url.URL
	Transport http.RoundTripper
	VolumeID  string
	Token     string
	UserAgent string
}

// Entry is a file, directory or link of a volume.
type Entry struct {
	Name   string    `json:"name"`
	Path   string    `json:"path"`
	Type   string    `json:"type"` // file, directory, symlink or unknown
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	ATime  time.Time `json:"atime"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Target string    `json:"target"`
}

// Owner says who owns what is written, and with which permissions. What is nil is
// left to the service, or as it is.
type Owner struct {
	UID  *uint32 `json:"uid,omitempty"`
	GID  *uint32 `json:"gid,omitempty"`
	Mode *uint32 `json:"mode,omitempty"`
}

func (o Owner) query(v url.Values) {
	for name, n := range map[string]*uint32{"uid": o.UID, "gid": o.GID, "mode": o.Mode} {
		if n != nil {
			v.Set(name, strconv.FormatUint(uint64(*n), 10))
		}
	}
}

// request makes a request about a path. The caller closes the answer's body.
func (c *Client) request(ctx context.Context, method, route, path string, more url.Values, body io.Reader, contentType string) (*http.Request, error) {
	u := transport.Join(c.Base, "volumecontent", c.VolumeID, route)
	if more == nil {
		more = url.Values{}
	}
	more.Set("path", path)
	u.RawQuery = more.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, transport.Cause(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("User-Agent", c.UserAgent)
	req.Header.Set("Accept-Encoding", "identity")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req, nil
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	client := http.Client{Transport: c.Transport, CheckRedirect: transport.CheckRedirect}
	resp, err := client.Do(req)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, transport.Cause(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _, _ := transport.ReadBody(resp.Body, transport.MaxErrorBody)
	return nil, transport.NewStatusError(resp.StatusCode, req.Header, resp.Header, b, c.Token)
}

// maxAnswer bounds an answer that is decoded as a whole. A listing of a hundred
// thousand entries is smaller.
const maxAnswer = 64 << 20

// call makes a request and decodes the answer into out, if that is not nil.
func (c *Client) call(ctx context.Context, method, route, path string, more url.Values, body []byte, out any) error {
	var r io.Reader
	contentType := ""
	if body != nil {
		r, contentType = bytes.NewReader(body), "application/json"
	}
	req, err := c.request(ctx, method, route, path, more, r, contentType)
	if err != nil {
		return err
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	return decode(ctx, resp, out)
}

func decode(ctx context.Context, resp *http.Response, out any) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case len(b) > maxAnswer:
		return fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("an answer that cannot be read: %s", transport.Clean(err.Error(), false))
	}
	return nil
}

// List describes what is below a directory, depth levels deep.
func (c *Client) List(ctx context.Context, path string, depth int) ([]Entry, error) {
	var out *[]Entry
	err := c.call(ctx, http.MethodGet, "dir", path, url.Values{"depth": {strconv.Itoa(depth)}}, nil, &out)
	if err == nil && out == nil {
		err = errors.New("an answer that is no list")
	}
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// Stat describes one entry.
func (c *Client) Stat(ctx context.Context, path string) (*Entry, error) {
	return c.entry(ctx, http.MethodGet, "path", path, nil, nil)
}

// MakeDir makes a directory, with force also those above it.
func (c *Client) MakeDir(ctx context.Context, path string, o Owner, force bool) (*Entry, error) {
	v := url.Values{"force": {strconv.FormatBool(force)}}
	o.query(v)
	return c.entry(ctx, http.MethodPost, "dir", path, v, nil)
}

// Change changes owner and permissions of an entry.
func (c *Client) Change(ctx context.Context, path string, o Owner) (*Entry, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return c.entry(ctx, http.MethodPatch, "path", path, nil, body)
}

func (c *Client) entry(ctx context.Context, method, route, path string, more url.Values, body []byte) (*Entry, error) {
	var out *Entry
	if err := c.call(ctx, method, route, path, more, body, &out); err != nil {
		return nil, err
	}
	return some(out)
}

// some refuses null, which decodes into anything, to nothing.
func some(e *Entry) (*Entry, error) {
	if e == nil {
		return nil, errors.New("an answer that describes nothing")
	}
	return e, nil
}

// Remove removes a file or directory.
func (c *Client) Remove(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, "path", path, nil, nil, nil)
}

// Open returns the contents of a file. ctx bounds the reading too.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := c.request(ctx, http.MethodGet, "file", path, nil, nil, "")
	if err != nil {
		return nil, err
	}
	resp, err := c.send(req)
	if err != nil {
		return nil, err
	}
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case resp.Close && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0:
		err = errors.New("an answer that does not say where it ends")
	case encoding != "" && encoding != "identity":
		err = errors.New("an answer in an encoding that was not asked for")
	default:
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// Write writes a file, with force also the directories above it. size is the
// length of r, or -1; inMemory says that reading it takes no time.
func (c *Client) Write(ctx context.Context, idle *transport.Idle, path string, r io.Reader, size int64, inMemory bool, o Owner, force bool) (*Entry, error) {
	v := url.Values{"force": {strconv.FormatBool(force)}}
	o.query(v)
	src := transport.NewSource()
	req, err := c.request(ctx, http.MethodPut, "file", path, v, idle.ToWire(src.Reader(r)), "application/octet-stream")
	if err != nil {
		return nil, err
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	var out *Entry
	err = src.Send(ctx, size, inMemory, func() error {
		resp, err := c.send(req)
		if err != nil {
			return err
		}
		return decode(ctx, resp, &out)
	})
	if err != nil {
		return nil, err
	}
	return some(out)
}
