package control

import (
	"fmt"
	"maps"
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

// checkRules applies E2B's limits, in words of its own.
func checkRules(rules map[string][]networkRule) *Error {
	const maxDomains, maxHeaders, maxName, maxValue = 10, 20, 64, 2048
	refused := func(format string, args ...any) *Error {
		return fail(http.StatusBadRequest, "invalid network rules: "+fmt.Sprintf(format, args...))
	}
	if len(rules) > maxDomains {
		return refused("more than %d domains", maxDomains)
	}
	for _, domain := range slices.Sorted(maps.Keys(rules)) {
		if len(rules[domain]) > 1 {
			return refused("more than one transform for %s", domain)
		}
		for _, r := range rules[domain] {
			if r.Transform == nil {
				continue
			}
			if len(r.Transform.Headers) > maxHeaders {
				return refused("more than %d headers for %s", maxHeaders, domain)
			}
			for name, value := range r.Transform.Headers {
				if len(name) > maxName || len(value) > maxValue {
					return refused("a header for %s is longer than %d and %d bytes", domain, maxName, maxValue)
				}
			}
		}
	}
	return nil
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
	if err := checkRules(n.Rules); err != nil {
		return err
	}
	if strings.ContainsFunc(n.MaskRequestHost, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return fail(http.StatusBadRequest, "invalid mask request host "+n.MaskRequestHost)
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
