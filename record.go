package e2b

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-09a7379d/e2b-go/internal/transport"
)

// A Record is all that is needed to use a sandbox again: a program can store it
// and hand it to Client.FromRecord later, or elsewhere. Its JSON holds the
// sandbox's tokens; %+v and logs of it do not.
type Record struct {
	SandboxID          string
	Domain             string
	EnvdVersion        string
	EnvdAccessToken    Token
	TrafficAccessToken Token
	Timeout            time.Duration // the lifetime that the handle was made with
}

// recordVersion is raised when an older SDK would misread what is stored.
const recordVersion = 1

type recordJSON struct {
	Version            int    `json:"version"`
	SandboxID          string `json:"sandboxID"`
	Domain             string `json:"domain,omitempty"`
	EnvdVersion        string `json:"envdVersion,omitempty"`
	EnvdAccessToken    Token  `json:"envdAccessToken,omitzero"`
	TrafficAccessToken Token  `json:"trafficAccessToken,omitzero"`
	Timeout            string `json:"timeout,omitempty"`
}

// LogValue returns r without its tokens: a handler of log/slog that writes JSON
// would take those of MarshalJSON.
func (r Record) LogValue() slog.Value {
	return slog.GroupValue(slog.String("sandboxID", r.SandboxID), slog.String("domain", r.Domain),
		slog.String("envdVersion", r.EnvdVersion), slog.Duration("timeout", r.Timeout))
}

// MarshalJSON encodes r with a version number.
func (r Record) MarshalJSON() ([]byte, error) {
	j := recordJSON{recordVersion, r.SandboxID, r.Domain, r.EnvdVersion, r.EnvdAccessToken, r.TrafficAccessToken, ""}
	if r.Timeout != 0 {
		j.Timeout = r.Timeout.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote. A version that this SDK does not
// know is an error.
func (r *Record) UnmarshalJSON(b []byte) error {
	var j recordJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if j.Version != recordVersion {
		return fmt.Errorf("e2b: record has version %d, this SDK reads %d", j.Version, recordVersion)
	}
	var d time.Duration
	if j.Timeout != "" {
		var err error
		if d, err = time.ParseDuration(j.Timeout); err != nil {
			return fmt.Errorf("e2b: record has a timeout that is no duration: %.40q", j.Timeout)
		}
	}
	*r = Record{j.SandboxID, j.Domain, j.EnvdVersion, j.EnvdAccessToken, j.TrafficAccessToken, d}
	return nil
}

// Record returns what FromRecord needs to make this handle again.
func (s *Sandbox) Record() Record {
	st := s.state.Load()
	return Record{
		SandboxID: s.id, Domain: st.domain, EnvdVersion: st.version,
		EnvdAccessToken: st.envdToken, TrafficAccessToken: st.trafficToken, Timeout: st.lifetime,
	}
}

// FromRecord makes a handle from a stored record. It makes no request, so the
// sandbox may be paused, or gone: Sandbox.Connect tells.
//
// Errors: ErrInvalidArgument.
//
// See https://e2b.dev/docs/sandbox/connect.
func (c *Client) FromRecord(r Record) (*Sandbox, error) {
	const op = "from record"
	id, err := sandboxID(op, r.SandboxID)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Timeout < 0:
		return nil, invalid(op, "Record.Timeout", "is negative")
	case r.Domain != "" && !validDomain(r.Domain):
		return nil, invalid(op, "Record.Domain", "is not a host name: %.100q", r.Domain)
	case !transport.ValidHeader(r.EnvdAccessToken.Reveal()), !transport.ValidHeader(r.TrafficAccessToken.Reveal()):
		return nil, invalid(op, "Record", "has a token with control characters")
	}
	s := &Sandbox{client: c, id: id}
	s.init(&handle{
		domain: r.Domain, version: r.EnvdVersion,
		envdToken: r.EnvdAccessToken, trafficToken: r.TrafficAccessToken,
		lifetime: c.lifetimeOr(r.Timeout),
	})
	return s, nil
}
