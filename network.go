package e2b

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-09a7379d/e2b-go/internal/controlapi"
)

// AllTraffic in Network.DenyOut denies what AllowOut does not allow. See
// https://e2b.dev/docs/sandbox/internet-access.
const AllTraffic = "0.0.0.0/0"

// Network is what traffic a sandbox may have. The zero value sets no limit.
//
// See https://e2b.dev/docs/sandbox/internet-access.
type Network struct {
	// AllowOut are addresses, CIDRs, domains or *.domains that the sandbox may reach.
	// They win over DenyOut. A domain needs AllTraffic in DenyOut; the name server
	// 8.8.8.8 is then allowed too.
	AllowOut []string
	// DenyOut are addresses and CIDRs that it may not reach.
	DenyOut            []string
	AllowPublicTraffic *bool  // whether its ports answer without a token; nil: yes
	MaskRequestHost    string // the Host header that its services see; ${PORT} is replaced
	HTTPSPorts         []int  // ports whose service speaks TLS itself; not 49983

	// Rules change the sandbox's HTTPS requests to a domain, or to *.domain. They
	// grant no access by themselves. E2B turns them on per team, and takes at most
	// 10 domains with one rule each.
	Rules map[string][]NetworkRule
	// EgressProxy carries the sandbox's outgoing connections; nil: they go out
	// directly. E2B turns it on per team.
	EgressProxy *EgressProxy
}

// NetworkRule is what is done to requests to a domain.
//
// See https://e2b.dev/docs/sandbox/internet-access.
type NetworkRule struct {
	// Headers are set in each of them. A value may hold SecretPlaceholder or
	// IAMPlaceholder, which the proxy outside of the sandbox replaces, so that nothing
	// in the sandbox ever sees the secret. No value is shown when a rule is printed.
	// E2B takes at most 20 in a rule, with names of up to 64 and values of up to 2,048
	// characters.
	Headers map[string]string
}

// Format prints the names of the headers alone.
func (r NetworkRule) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "{Headers:"+strings.Join(slices.Sorted(maps.Keys(r.Headers)), ",")+"}")
}

// LogValue is what Format prints.
func (r NetworkRule) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(r)) }

// LogValue returns n without passwords and the values of headers: a handler of
// log/slog that writes JSON would show them.
func (n Network) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%+v", n)) }

// LogValue returns p without its password.
func (p EgressProxy) LogValue() slog.Value {
	return slog.GroupValue(slog.String("address", p.Address), slog.String("username", p.Username))
}

// EgressProxy is a SOCKS5 proxy for outgoing connections.
//
// See https://e2b.dev/docs/sandbox/internet-access.
type EgressProxy struct {
	Address  string // host:port
	Username string // "": the proxy asks for none
	Password Token  // never shown by Info
}

// IAMToken is a token for the sandbox's identity, which the proxy makes anew for
// each request whose rule names it.
//
// See https://e2b.dev/docs/sandbox/internet-access.
type IAMToken struct {
	Audience string // whom the token is for; required
	Type     string // "" means "JWT-SVID", the only one that there is
}

// IAMPlaceholder is what stands in a rule's header for the token that
// CreateOptions.IAM has under a name. Create refuses a name that IAM does not have,
// with ErrInvalidArgument.
//
// See https://e2b.dev/docs/sandbox/internet-access.
func IAMPlaceholder(name string) string { return iamPrefix + name + "}" }

// SecretPlaceholder is what stands in a rule's header for the current value of a
// secret: see Client.CreateSecret. This SDK does not check whether there is one.
//
// See https://e2b.dev/docs/sandbox/internet-access.
func SecretPlaceholder(name string) string { return "${e2b.secrets." + name + "}" }

const iamPrefix = "${e2b.identity.tokens."

// SetNetworkOptions says what else SetNetwork sets. The zero value lets the sandbox
// reach the internet.
//
// See https://e2b.dev/docs/sandbox/internet-access.
type SetNetworkOptions struct {
	NoInternet bool // cut the sandbox off from the internet
}

var (
	opSetNetwork    = operation{name: "set network", notFound: ErrSandboxNotFound}
	opUpdateNetwork = operation{name: "update network", notFound: ErrSandboxNotFound}
)

// SetNetwork replaces all rules for the outgoing traffic of a running sandbox:
// what n and opts do not have is gone afterwards, also the proxy, and nil allows
// everything. Use UpdateNetwork to change one thing. Rules for incoming traffic
// cannot be changed, and must not be in n.
//
// After an error of the server the new rules may be stored without being in force.
//
// Errors: ErrInvalidArgument, ErrSandboxNotRunning (also paused),
// ErrSandboxNotFound, ErrConflict (the sandbox is changing its state),
// ErrUnauthenticated, ErrForbidden (the team is blocked, or may not use a proxy),
// ErrRateLimited, ErrNotSupported.
//
// See https://e2b.dev/docs/sandbox/internet-access.
func (s *Sandbox) SetNetwork(ctx context.Context, n *Network, opts *SetNetworkOptions) error {
	var o SetNetworkOptions
	if opts != nil {
		o = *opts
	}
	if n == nil {
		n = &Network{}
	}
	switch {
	case n.AllowPublicTraffic != nil:
		return invalid(opSetNetwork.name, "AllowPublicTraffic", "can be set by Create only")
	case n.MaskRequestHost != "":
		return invalid(opSetNetwork.name, "MaskRequestHost", "can be set by Create only")
	case len(n.HTTPSPorts) > 0:
		return invalid(opSetNetwork.name, "HTTPSPorts", "can be set by Create only")
	}
	internet := !o.NoInternet
	return s.setNetwork(ctx, opSetNetwork, n, &internet)
}

// UpdateNetwork changes the rules for the outgoing traffic of a running sandbox:
// change gets what is in force now and changes that. It makes two requests, both
// bounded by ctx; a change that somebody else makes between them is lost.
//
// The password of EgressProxy cannot be read back: change must set it again, or
// take the proxy away, or UpdateNetwork is refused. Whether the sandbox may reach
// the internet at all stays as it is.
//
// Errors: as SetNetwork.
//
// See https://e2b.dev/docs/sandbox/internet-access.
func (s *Sandbox) UpdateNetwork(ctx context.Context, change func(*Network)) error {
	if change == nil {
		return invalid(opUpdateNetwork.name, "change", "is nil")
	}
	info, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if info.State != StateRunning {
		return &APIError{Op: opUpdateNetwork.name, SandboxID: s.id, State: info.State, Attempts: 1, kinds: []error{ErrSandboxNotRunning}}
	}
	n := info.Network
	if n == nil {
		n = &Network{}
	}
	before := *n
	before.HTTPSPorts = slices.Clone(n.HTTPSPorts)
	if p := n.AllowPublicTraffic; p != nil {
		before.AllowPublicTraffic = new(*p)
	}
	change(n)
	switch {
	case !same(before.AllowPublicTraffic, n.AllowPublicTraffic), before.MaskRequestHost != n.MaskRequestHost, !slices.Equal(before.HTTPSPorts, n.HTTPSPorts):
		return invalid(opUpdateNetwork.name, "change", "changes what Create alone can set: AllowPublicTraffic, MaskRequestHost or HTTPSPorts")
	case n.EgressProxy != nil && n.EgressProxy.Username != "" && n.EgressProxy.Password.IsZero():
		return invalid(opUpdateNetwork.name, "EgressProxy.Password", "cannot be read back: set it again")
	}
	// Left out, it would give a sandbox without internet access that access.
	return s.setNetwork(ctx, opUpdateNetwork, n, info.AllowInternet)
}

func same(a, b *bool) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (s *Sandbox) setNetwork(ctx context.Context, op operation, n *Network, internet *bool) error {
	if err := n.check(op.name, nil); err != nil {
		return err
	}
	w := n.wire()
	err := s.client.api.SetNetwork(ctx, s.id, &controlapi.NetworkUpdate{
		AllowOut: w.AllowOut, DenyOut: w.DenyOut, Rules: w.Rules, EgressProxy: w.EgressProxy, AllowInternetAccess: internet,
	})
	return s.client.pausedOrGone(ctx, controlError(ctx, op, s.id, err), s.id)
}

// check refuses what the server would refuse, or what would only show in the
// sandbox. tokens are those that rules may name; nil: not known.
func (n *Network) check(op string, tokens map[string]IAMToken) error {
	if n == nil {
		return nil
	}
	for _, denied := range n.DenyOut {
		if !isAddress(denied) {
			return invalid(op, "DenyOut", "has what is no address or CIDR: %.80q. Domains can be allowed only", denied)
		}
	}
	for _, allowed := range n.AllowOut {
		if allowed == "" || strings.ContainsFunc(allowed, unicode.IsControl) {
			return invalid(op, "AllowOut", "has what is no address, CIDR or domain: %.80q", allowed)
		}
		if !isAddress(allowed) && !slices.Contains(n.DenyOut, AllTraffic) {
			return invalid(op, "AllowOut", "has the domain %.80q, for which DenyOut must have AllTraffic", allowed)
		}
	}
	for _, port := range n.HTTPSPorts {
		if port <= 0 || port > 65535 || port == envdPort {
			return invalid(op, "HTTPSPorts", "has what can be none: %d", port)
		}
	}
	for domain, rules := range n.Rules {
		for _, rule := range rules {
			for name, value := range rule.Headers {
				if err := checkRuleHeader(op, domain, name, value, tokens); err != nil {
					return err
				}
			}
		}
	}
	if n.EgressProxy != nil && n.EgressProxy.Address == "" {
		return invalid(op, "EgressProxy.Address", "is empty")
	}
	return nil
}

func checkRuleHeader(op, domain, name, value string, tokens map[string]IAMToken) error {
	if name == "" || strings.ContainsFunc(name, notToken) || strings.ContainsFunc(value, unicode.IsControl) {
		return invalid(op, "Rules", "has for %.80q a header that cannot be: %.80q", domain, name)
	}
	if op != opCreate.name {
		return nil // which tokens a sandbox has cannot be asked
	}
	for _, rest := range strings.Split(value, iamPrefix)[1:] {
		token, _, _ := strings.Cut(rest, "}")
		if _, known := tokens[token]; !known {
			return invalid(op, "Rules", "name the token %.80q, which IAM does not have", token)
		}
	}
	return nil
}

func isAddress(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}

// iamOf turns tokens into what is sent.
func iamOf(op string, tokens map[string]IAMToken) (*controlapi.IAM, error) {
	if len(tokens) == 0 {
		return nil, nil //nolint:nilnil // nothing is sent
	}
	out := &controlapi.IAM{Tokens: make(map[string]controlapi.IAMToken, len(tokens))}
	for name, token := range tokens {
		if name == "" || strings.ContainsAny(name, "{}") || strings.ContainsFunc(name, unicode.IsControl) {
			return nil, invalid(op, "IAM", "has a name that no placeholder can hold: %.80q", name)
		}
		if token.Audience == "" {
			return nil, invalid(op, "IAM", "has no audience for %.80q", name)
		}
		if token.Type == "" {
			token.Type = "JWT-SVID"
		}
		out.Tokens[name] = controlapi.IAMToken{Audience: token.Audience, TokenType: token.Type}
	}
	return out, nil
}

// wire turns n into what is sent.
func (n *Network) wire() *controlapi.Network {
	if n == nil {
		return nil
	}
	out := &controlapi.Network{
		AllowPublicTraffic: n.AllowPublicTraffic, AllowOut: n.AllowOut, DenyOut: n.DenyOut,
		MaskRequestHost: n.MaskRequestHost, HTTPSPorts: n.HTTPSPorts,
	}
	for domain, rules := range n.Rules {
		if out.Rules == nil {
			out.Rules = make(map[string][]controlapi.NetworkRule, len(n.Rules))
		}
		list := make([]controlapi.NetworkRule, len(rules))
		for i, r := range rules {
			list[i].Transform = &controlapi.Transform{Headers: r.Headers}
		}
		out.Rules[domain] = list
	}
	if p := n.EgressProxy; p != nil {
		out.EgressProxy = &controlapi.EgressProxy{Address: p.Address, Username: p.Username, Password: p.Password.Reveal()}
	}
	return out
}

// networkOf turns what came back into a Network.
func networkOf(w *controlapi.Network) *Network {
	if w == nil {
		return nil
	}
	n := &Network{
		AllowPublicTraffic: w.AllowPublicTraffic, AllowOut: w.AllowOut, DenyOut: w.DenyOut,
		MaskRequestHost: w.MaskRequestHost, HTTPSPorts: w.HTTPSPorts,
	}
	for domain, rules := range w.Rules {
		if n.Rules == nil {
			n.Rules = make(map[string][]NetworkRule, len(w.Rules))
		}
		list := make([]NetworkRule, len(rules))
		for i, r := range rules {
			if r.Transform != nil {
				list[i].Headers = r.Transform.Headers
			}
		}
		n.Rules[domain] = list
	}
	if p := w.EgressProxy; p != nil {
		n.EgressProxy = &EgressProxy{Address: p.Address, Username: p.Username, Password: NewToken(p.Password)}
	}
	return n
}
