package controlapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// NewSandbox is the body of a create. A field that is not set is not sent: the
// server refuses null.
type NewSandbox struct {
	TemplateID          string            `json:"templateID"`
	Timeout             int32             `json:"timeout"`
	AutoPause           *bool             `json:"autoPause,omitempty"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory,omitempty"`
	AutoResume          *AutoResume       `json:"autoResume,omitempty"`
	Secure              bool              `json:"secure,omitempty"` // gone from the v2 route
	AllowInternetAccess *bool             `json:"allow_internet_access,omitempty"`
	Network             *Network          `json:"network,omitempty"`
	Metadata            map[string]string `json:"metadata,omitempty"`
	EnvVars             map[string]string `json:"envVars,omitempty"`
	VolumeMounts        []VolumeMount     `json:"volumeMounts,omitempty"`
	MCP                 map[string]any    `json:"mcp,omitempty"`
	IAM                 *IAM              `json:"iam,omitempty"`
}

// IAM is the workload identity of a sandbox.
type IAM struct {
	Tokens map[string]IAMToken `json:"tokens"`
}

// IAMToken is a workload token that rules may name.
type IAMToken struct {
	Audience  string `json:"audience"`
	TokenType string `json:"tokenType"`
}

// AutoResume says whether traffic wakes a paused sandbox.
type AutoResume struct {
	Enabled bool `json:"enabled"`
}

// minSecret is the length below which a value is no secret, and taking it out of
// texts would spoil them.
const minSecret = 6

// secrets returns what the body holds that no error may show.
func (n *NewSandbox) secrets() []string {
	out := slices.Collect(maps.Values(n.EnvVars))
	if n.Network != nil {
		out = append(out, egressSecrets(n.Network.Rules, n.Network.EgressProxy)...)
	}
	var config any // of the plain types
	if b, err := json.Marshal(n.MCP); err == nil && json.Unmarshal(b, &config) == nil {
		out = append(out, leaves(config)...)
	}
	return slices.DeleteFunc(out, func(s string) bool { return len(s) < minSecret })
}

func egressSecrets(rules map[string][]NetworkRule, proxy *EgressProxy) []string {
	var out []string
	for _, list := range rules {
		for _, r := range list {
			if r.Transform != nil {
				out = slices.AppendSeq(out, maps.Values(r.Transform.Headers))
			}
		}
	}
	if proxy != nil {
		out = append(out, proxy.Password)
	}
	return out
}

// leaves returns the strings within v.
func leaves(v any) []string {
	var out []string
	switch v := v.(type) {
	case string:
		return []string{v}
	case map[string]any:
		for _, e := range v {
			out = append(out, leaves(e)...)
		}
	case []any:
		for _, e := range v {
			out = append(out, leaves(e)...)
		}
	}
	return out
}

// Network is a sandbox's network configuration.
type Network struct {
	AllowPublicTraffic *bool    `json:"allowPublicTraffic,omitempty"`
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	MaskRequestHost    string   `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int    `json:"httpsPorts,omitempty"`

	Rules       map[string][]NetworkRule `json:"rules,omitempty"`
	EgressProxy *EgressProxy             `json:"egressProxy,omitempty"`
}

// NetworkUpdate replaces the rules for outgoing traffic. What is left out is
// cleared.
type NetworkUpdate struct {
	AllowOut            []string                 `json:"allowOut,omitempty"`
	DenyOut             []string                 `json:"denyOut,omitempty"`
	Rules               map[string][]NetworkRule `json:"rules,omitempty"`
	EgressProxy         *EgressProxy             `json:"egressProxy,omitempty"`
	AllowInternetAccess *bool                    `json:"allow_internet_access,omitempty"`
}

// NetworkRule is one rule for a domain.
type NetworkRule struct {
	Transform *Transform `json:"transform,omitempty"`
}

// Transform is how a rule changes a request.
type Transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

// EgressProxy is a proxy for outgoing connections.
type EgressProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// ConnectSandbox is the body of a connect.
type ConnectSandbox struct {
	Timeout int32 `json:"timeout"`
	Memory  *bool `json:"memory,omitempty"`
}

// PauseSandbox is the body of a pause.
type PauseSandbox struct {
	Memory *bool `json:"memory,omitempty"`
}

// Sandbox is what create and connect answer.
type Sandbox struct {
	SandboxID          string `json:"sandboxID"`
	TemplateID         string `json:"templateID"`
	EnvdVersion        string `json:"envdVersion"`
	EnvdAccessToken    string `json:"envdAccessToken"`
	TrafficAccessToken string `json:"trafficAccessToken"`
	Domain             string `json:"domain"`
}

// Detail is a sandbox as info and the lists show it.
type Detail struct {
	SandboxID           string            `json:"sandboxID"`
	TemplateID          string            `json:"templateID"`
	Alias               string            `json:"alias"`
	State               string            `json:"state"`
	Metadata            map[string]string `json:"metadata"`
	StartedAt           Time              `json:"startedAt"`
	EndAt               Time              `json:"endAt"`
	CPUCount            int               `json:"cpuCount"`
	MemoryMB            int               `json:"memoryMB"`
	DiskSizeMB          int               `json:"diskSizeMB"`
	EnvdVersion         string            `json:"envdVersion"`
	Domain              string            `json:"domain"`
	Lifecycle           *Lifecycle        `json:"lifecycle"`
	AllowInternetAccess *bool             `json:"allowInternetAccess"`
	Network             *Network          `json:"network"`
	VolumeMounts        []VolumeMount     `json:"volumeMounts"`
}

// Lifecycle says what happens to a sandbox at its timeout, and after it.
type Lifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

// VolumeMount is a volume in a sandbox.
type VolumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// Time is a time that may be missing, null or empty, which all mean unknown.
type Time struct{ time.Time }

// UnmarshalJSON reads RFC 3339.
func (t *Time) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s == nil || *s == "" {
		t.Time = time.Time{}
		return nil
	}
	v, err := time.Parse(time.RFC3339Nano, *s)
	if err != nil {
		return fmt.Errorf("time %.40q is not in RFC 3339", *s)
	}
	t.Time = v
	return nil
}

// seconds turns a duration into whole seconds, rounded up: a lifetime must never
// be shorter than what was asked for.
func seconds(d time.Duration) int32 {
	s := d / time.Second
	if d%time.Second > 0 {
		s++
	}
	return int32(min(s, 1<<31-1)) //nolint:gosec // bounded by min
}
