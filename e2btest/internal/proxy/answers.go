package proxy

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"strings"
)

// An answer is an error that the proxy itself makes, in the shape that E2B's
// proxies use. Clients tell it from an application's own answer by the fields
// sandboxId and code.
type answer struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Path      string `json:"path,omitempty"`
	Code      int    `json:"code"`
	Limit     int    `json:"connectionLimit,omitempty"`

	title string // of the page for browsers
}

func notFound(id string) *answer {
	return &answer{SandboxID: id, Message: "The sandbox was not found", Code: http.StatusBadGateway, title: "Sandbox Not Found"}
}

func portClosed(id string, port int) *answer {
	return &answer{
		SandboxID: id, Message: "The sandbox is running but port is not open", Port: port, Code: http.StatusBadGateway,
		title: "Port Not Open",
	}
}

func resumeDenied(id string) *answer {
	return &answer{
		SandboxID: id, Code: http.StatusForbidden, title: "Access Denied",
		Message: "This sandbox can't be resumed with the credentials provided. Check your access token and try again.",
	}
}

func quotaReached(id, message string) *answer {
	return &answer{
		SandboxID: id, Code: http.StatusTooManyRequests, title: "Too Many Sandboxes",
		Message: "grpc resume: rpc error: code = ResourceExhausted desc = " + message,
	}
}

func tooMany(id string, limit int) *answer {
	return &answer{
		SandboxID: id, Code: http.StatusTooManyRequests, Limit: limit, title: "Too Many Connections",
		Message: fmt.Sprintf("The sandbox has too many concurrent incoming connections (limit: %d)", limit),
	}
}

func trafficDenied(id, why string) *answer {
	return &answer{
		SandboxID: id, Code: http.StatusForbidden, title: "Access Denied",
		Message: "Sandbox is secured with traffic access token. " + why,
	}
}

func reserved(path string) *answer {
	return &answer{
		Path: path, Code: http.StatusNotFound, title: "Not Found",
		Message: "This endpoint is reserved for the E2B control plane and is not reachable through the sandbox URL",
	}
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body><h1>{{.Title}}</h1><p>{{.Message}}.</p>{{with .Sandbox}}<p>Sandbox: <code>{{.}}</code></p>{{end}}{{with .Port}}<p>Port: <code>{{.}}</code></p>{{end}}</body>
</html>
`))

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	if wantsHTML(r.Header) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(a.Code)
		_ = page.Execute(w, map[string]any{ // a client that has gone is no error of ours
			"Title": a.title, "Message": strings.TrimSuffix(a.Message, "."), "Sandbox": a.SandboxID, "Port": a.Port,
		})
		return
	}
	body, err := json.Marshal(a)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.Code)
	_, _ = w.Write(body) // a client that has gone is no error of ours
}

var browser = regexp.MustCompile(`(?i)mozilla|chrome|safari|firefox|edge|opera|msie`)

// wantsHTML tells a person with a browser from a program.
func wantsHTML(h http.Header) bool {
	if !browser.MatchString(h.Get("User-Agent")) {
		return false
	}
	accept := h.Get("Accept")
	if strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		return false
	}
	switch h.Get("Sec-Fetch-Mode") {
	case "cors", "no-cors", "same-origin", "websocket":
		return false
	case "navigate":
		return true
	}
	return h.Get("X-Requested-With") == ""
}
