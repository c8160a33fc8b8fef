package e2btest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"
)

// maxGone is how many sandboxes that are gone the status page shows.
const maxGone = 20

// withStatusPage shows browsers the status page at /. All else is the API's.
func (s *Server) withStatusPage(api http.Handler) http.Handler {
	if !s.opts.StatusPage {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wantsPage(r) && isLocal(r.Host) {
			s.serveStatusPage(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// wantsPage reports whether a browser asks for the page. Clients of the API get what
// E2B answers at /.
func wantsPage(r *http.Request) bool {
	return r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), "text/html")
}

// isLocal reports whether a Host header names this machine. Another name that leads
// here is that of a site which would read the page in its visitor's browser.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

func (s *Server) serveStatusPage(w http.ResponseWriter, r *http.Request) {
	var page bytes.Buffer
	if err := statusPage.Execute(&page, s.statusOf(s.Sandboxes())); err != nil {
		s.opts.Logger.ErrorContext(r.Context(), "the status page failed", "error", err)
		http.Error(w, "the status page failed", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", statusPolicy)
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page.Bytes()) // a browser that has gone is no error of ours
}

// A statusView is what the status page shows.
type statusView struct {
	Style     template.CSS
	Running   int
	Paused    int
	Gone      int
	Hidden    int // that are gone and not shown
	Isolation string
	Rows      []statusRow
}

type statusRow struct {
	SandboxStatus
	Metadata []string // key=value
}

// EndLabel says what EndAt is.
func (r *statusRow) EndLabel() string {
	switch r.State {
	case "paused", "pausing", "resuming":
		return "paused at"
	case "gone", "killing":
		return "ended at"
	}
	return "ends at"
}

// End is EndAt for people.
func (r *statusRow) End() string { return r.EndAt.Local().Format(time.DateTime) }

// Created is CreatedAt for people.
func (r *statusRow) Created() string { return r.CreatedAt.Local().Format(time.DateTime) }

// BilledTime is Billed for people.
func (r *statusRow) BilledTime() string { return r.Billed.Round(time.Second).String() }

// Programs are what the processes run, without arguments, which may hold secrets.
func (r *statusRow) Programs() []string {
	list := make([]string, 0, len(r.Processes))
	for _, p := range r.Processes {
		program, _, _ := strings.Cut(p.Command, " ")
		list = append(list, fmt.Sprintf("%d %s", p.PID, path.Base(program)))
	}
	return list
}

// statusOf puts the newest sandboxes first, and after them those that are gone.
func (s *Server) statusOf(sandboxes []SandboxStatus) *statusView {
	v := &statusView{Style: statusStyle}
	if ok, reason := s.Isolated(); !ok {
		v.Isolation = cmp.Or(reason, "unknown reason")
	}
	var gone []statusRow
	for _, sb := range slices.Backward(sandboxes) {
		row := statusRow{SandboxStatus: sb}
		for _, key := range slices.Sorted(maps.Keys(sb.Metadata)) {
			row.Metadata = append(row.Metadata, key+"="+sb.Metadata[key])
		}
		switch sb.State {
		case "gone":
			v.Gone++
			gone = append(gone, row)
			continue
		case "paused", "pausing", "resuming":
			v.Paused++
		default:
			v.Running++
		}
		v.Rows = append(v.Rows, row)
	}
	v.Hidden = max(0, len(gone)-maxGone)
	v.Rows = append(v.Rows, gone[:len(gone)-v.Hidden]...)
	return v
}

const statusStyle = `
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; }
code { font-size: 13px; overflow-wrap: anywhere; }
.number { text-align: right; }
.gone { color: #888; }
`

// statusPolicy lets the page use its own style and nothing else.
var statusPolicy = func() string {
	sum := sha256.Sum256([]byte(statusStyle))
	return fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}()

// The icon keeps browsers from asking the API for one.
var statusPage = template.Must(template.New("status").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="3">
<meta name="viewport" content="width=device-width">
<title>{{.Running}} running</title>
<link rel="icon" href="data:,">
<style>{{.Style}}</style>
</head>
<body>
<h1>Sandboxes</h1>
<p id="counts">{{.Running}} running, {{.Paused}} paused, {{.Gone}} gone</p>
{{- with .Isolation}}
<p id="isolation">Sandboxes are not isolated from this machine: {{.}}</p>
{{- end}}
{{- if .Rows}}
<table>
<thead><tr><th>ID</th><th>State</th><th>Template</th><th>Created</th><th>End</th><th class="number">Billed</th>
<th class="number">Requests</th><th>Processes</th><th>Metadata</th></tr></thead>
<tbody>
{{- range .Rows}}
<tr id="{{.ID}}" class="{{.State}}"><td><code>{{.ID}}</code></td><td>{{.State}}</td><td>{{or .TemplateName .Template}}</td>
<td>{{.Created}}</td><td>{{.EndLabel}} {{.End}}</td><td class="number">{{.BilledTime}}</td><td class="number">{{.Open}}</td>
<td>{{range .Programs}}<code>{{.}}</code><br>{{end}}</td><td>{{range .Metadata}}<code>{{.}}</code><br>{{end}}</td></tr>
{{- end}}
</tbody>
</table>
{{- with .Hidden}}
<p>{{.}} older ones that are gone are not shown.</p>
{{- end}}
{{- else}}
<p id="none">There is no sandbox yet.</p>
{{- end}}
</body>
</html>
`))
