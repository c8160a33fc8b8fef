package control

// networkUpdate replaces the rules for outgoing traffic. What it leaves out is
// cleared.
type networkUpdate struct {
	AllowOut            []string                 `json:"allowOut"`
	DenyOut             []string                 `json:"denyOut"`
	EgressProxy         *egressProxy             `json:"egressProxy"`
	Rules               map[string][]networkRule `json:"rules"`
	AllowInternetAccess *bool                    `json:"allow_internet_access"`
}

func (s *Server) handleNetwork(c *call) (*response, *Error) {
	var body networkUpdate
	if err := decode(c.body, &body); err != nil {
		return nil, err
	}
	id, err := c.id()
	if err != nil {
		return nil, err
	}
	n := network{AllowOut: body.AllowOut, DenyOut: body.DenyOut, EgressProxy: body.EgressProxy, Rules: body.Rules}
	if err := n.check(); err != nil { // before the sandbox is looked for
		return nil, err
	}
	return noContent(s.setNetwork(c.team, id, &n, body.AllowInternetAccess))
}

// setNetwork changes the outgoing half of a sandbox's network. The states that it
// is refused in are those of setTimeout.
func (s *Server) setNetwork(team *Team, id string, n *network, internet *bool) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := rules[opSetTimeout][s.phaseLocked(team, id)]
	if r.do != onLive {
		return r.refusal(id)
	}
	sb := s.live[id]
	// A view, or a pause, may hold the settings that there were.
	changed := *sb.settings
	old := changed.network
	if old != nil {
		n.AllowPublicTraffic, n.MaskRequestHost, n.HTTPSPorts = old.AllowPublicTraffic, old.MaskRequestHost, old.HTTPSPorts
	}
	if changed.network = n; old == nil && len(n.AllowOut)+len(n.DenyOut)+len(n.Rules) == 0 && n.EgressProxy == nil {
		changed.network = nil
	}
	if internet != nil {
		changed.allowInternet = internet
	}
	sb.settings = &changed
	return nil
}
