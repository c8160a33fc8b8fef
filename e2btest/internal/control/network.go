package control

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// network is the network configuration of a sandbox. The emulator shows it to
// the client again; of its effects it has those on incoming traffic.
type network struct {
	AllowPublicTraffic *bool                    `json:"allowPublicTraffic,omitempty"`
	AllowOut           []string                 `json:"allowOut,omitempty"`
	DenyOut            []string                 `json:"denyOut,omitempty"`
	MaskRequestHost    string                   `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int                    `json:"httpsPorts,omitempty"`
	EgressProxy        *egressProxy             `json:"egressProxy,omitempty"`
	Rules              map[string][]networkRule `json:"rules,omitempty"`
}

// egressProxy has no field for the password, which no answer shows.
type egressProxy struct {
	Address  string `json:"address"`
	Username string `json:"username,omitempty"`
}

type networkRule struct {
	Transform *networkTransform `json:"transform,omitempty"`
}

type networkTransform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

var domainName = regexp.MustCompile(`^(?:\*\.)?(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.)+[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

func isAddress(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// check applies the rules that go beyond the schema.
func (n *network) check() *Error {
	for _, denied := range n.DenyOut {
		if !isAddress(denied) {
			return fail(http.StatusBadRequest, "invalid denied CIDR "+denied)
		}
	}
	domains := false
	for _, allowed := range n.AllowOut {
		switch {
		case isAddress(allowed):
		case domainName.MatchString(allowed):
			domains = true
		default:
			return fail(http.StatusBadRequest, fmt.Sprintf("invalid allowed address %s", allowed))
		}
	}
	if domains && !slices.Contains(n.DenyOut, "0.0.0.0/0") {
		return fail(http.StatusBadRequest, "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.")
	}
	if len(n.Rules) > 0 {
		lower := make(map[string][]networkRule, len(n.Rules))
		for domain, rules := range n.Rules {
			lower[strings.ToLower(domain)] = rules
		}
		n.Rules = lower
	}
	return nil
}
