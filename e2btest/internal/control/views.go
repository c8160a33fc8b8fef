package control

import (
	"time"

	"github.com/seed-09a7379d/e2b-go/e2btest/internal/node"
)

// What every sandbox of the emulator is said to have.
const (
	clientID   = "6532622b"
	cpuCount   = node.CPUCount
	memoryMB   = node.MemoryMB
	diskSizeMB = node.DiskMB
)

// sandboxView is the answer of create and connect.
type sandboxView struct {
	Alias              string `json:"alias"`
	ClientID           string `json:"clientID"`
	EnvdAccessToken    string `json:"envdAccessToken,omitempty"`
	EnvdVersion        string `json:"envdVersion"`
	SandboxID          string `json:"sandboxID"`
	TemplateID         string `json:"templateID"`
	TrafficAccessToken string `json:"trafficAccessToken,omitempty"`
}

func (s *Server) view(c *settings) sandboxView {
	v := sandboxView{
		Alias: c.template.alias(), ClientID: clientID, EnvdVersion: c.envd,
		SandboxID: c.id, TemplateID: c.template.ID,
	}
	if c.secure {
		v.EnvdAccessToken = s.token("envd", c.id)
	}
	if c.private() {
		v.TrafficAccessToken = s.token("traffic", c.id)
	}
	return v
}

// listedView is an item of the lists.
type listedView struct {
	Alias        string             `json:"alias"`
	ClientID     string             `json:"clientID"`
	CPUCount     int                `json:"cpuCount"`
	DiskSizeMB   int                `json:"diskSizeMB"`
	EndAt        time.Time          `json:"endAt"`
	EnvdVersion  string             `json:"envdVersion"`
	MemoryMB     int                `json:"memoryMB"`
	Metadata     *map[string]string `json:"metadata,omitempty"` // a pointer, since empty is shown and absent is not
	SandboxID    string             `json:"sandboxID"`
	StartedAt    time.Time          `json:"startedAt"`
	State        string             `json:"state"`
	TemplateID   string             `json:"templateID"`
	VolumeMounts *[]volumeMount     `json:"volumeMounts,omitempty"` // a pointer, since empty is shown
}

func (c *settings) listed(state string) listedView {
	volumes := nonNil(c.volumes)
	v := listedView{
		Alias: c.template.alias(), ClientID: clientID, CPUCount: cpuCount, DiskSizeMB: diskSizeMB,
		EnvdVersion: c.envd, MemoryMB: memoryMB, SandboxID: c.id, State: state,
		TemplateID: c.template.ID, VolumeMounts: &volumes,
	}
	if c.metadata != nil {
		v.Metadata = &c.metadata
	}
	return v
}

func (sb *sandbox) listed(state string) listedView {
	v := sb.settings.listed(state)
	v.StartedAt, v.EndAt = sb.startedAt.UTC(), sb.endAt.UTC()
	return v
}

func (snap *snapshot) listed() listedView {
	v := snap.settings.listed("paused")
	v.StartedAt, v.EndAt = micros(snap.startedAt), micros(snap.pausedAt)
	return v
}

// micros rounds to what the database of paused sandboxes keeps.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// detailView is the answer to a GET of one sandbox.
type detailView struct {
	listedView
	AllowInternetAccess *bool         `json:"allowInternetAccess,omitempty"`
	EnvdAccessToken     string        `json:"envdAccessToken,omitempty"`
	Lifecycle           lifecycleView `json:"lifecycle"`
	Network             *network      `json:"network,omitempty"`
}

type lifecycleView struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s *Server) detail(c *settings, listed listedView) detailView {
	v := detailView{
		listedView: listed, AllowInternetAccess: c.allowInternet, EnvdAccessToken: s.view(c).EnvdAccessToken,
		Lifecycle: lifecycleView{AutoResume: c.autoResume, OnTimeout: "kill"}, Network: c.network,
	}
	if c.autoPause {
		v.Lifecycle.OnTimeout = "pause"
	}
	return v
}
