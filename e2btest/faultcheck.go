package e2btest

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
)

// check says why a Fault makes no sense.
func (f *Fault) check() error {
	var problem string
	switch {
	case f.Skip < 0 || f.Times < 0 || f.CutAfter < 0 || f.Port < 0 || f.DelayBefore < 0 || f.DelayAfter < 0:
		problem = "a number or a delay in it is below zero"
	case f.To != "" && f.To != ToAPI && f.To != ToSandboxes:
		problem = "its To is neither " + string(ToAPI) + " nor " + string(ToSandboxes)
	case f.Node != "" || f.Error != "":
		problem = f.problemOfStep()
	case f.Cut == CutConnect:
		problem = f.problemOfConnection()
	default:
		problem = cmp.Or(f.problemOfRequest(), f.problemOfTarget())
	}
	if problem == "" {
		return nil
	}
	return errors.New("fault: " + problem)
}

func (f *Fault) problemOfRequest() string {
	unanswered := f.Stall || f.Cut == CutRequest || f.Cut == CutAnswer
	switch {
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return "its status is not between 200 and 599"
	case f.Status == 0 && (f.Commit || f.Body != ""):
		return "Commit and Body need a Status"
	case f.Cut > CutConnect:
		return "its cut is unknown"
	case f.CutAfter > 0 && f.Cut != CutBody && f.Cut != CutMessage:
		return "CutAfter needs CutBody or CutMessage"
	case unanswered && f.Status != 0, f.Stall && f.Cut != CutNone:
		return "of Status, Stall, CutRequest and CutAnswer there can be only one"
	case f.Status == 0 && f.Cut == CutNone && !f.Stall && f.DelayBefore == 0 && f.DelayAfter == 0 && f.ClockSkew == 0 &&
		len(f.Header)+len(f.RemoveHeader)+len(f.Fields)+len(f.IgnoreQuery) == 0:
		return "it does nothing"
	}
	return ""
}

func (f *Fault) problemOfConnection() string {
	allowed := Fault{To: f.To, Skip: f.Skip, Times: f.Times, Cut: CutConnect}
	if !reflect.DeepEqual(*f, allowed) {
		return "CutConnect goes with To, Skip and Times alone"
	}
	return ""
}

func (f *Fault) problemOfStep() string {
	allowed := Fault{
		Node: f.Node, Error: f.Error, Body: f.Body, Sandbox: f.Sandbox, Skip: f.Skip, Times: f.Times,
		DelayBefore: f.DelayBefore, DelayAfter: f.DelayAfter,
	}
	failures, known := nodeErrors[f.Node]
	switch {
	case f.Node == "":
		return "Error needs a Node"
	case !known:
		return "a node has no step " + string(f.Node)
	case !reflect.DeepEqual(*f, allowed):
		return "Node goes with Error, Body, Sandbox, Skip, Times and delays alone"
	case f.Error != "" && !slices.Contains(failures, f.Error):
		return "the step " + string(f.Node) + " does not fail with " + string(f.Error)
	case f.Error != "" && f.DelayAfter > 0:
		return "DelayAfter needs a step that does not fail"
	case (f.Error == NodeRefused) != (f.Body != ""):
		return "NodeRefused needs a Body, and no other fault of a node has one"
	case f.Node == NodeStart && f.Sandbox != "":
		return "nobody knows the ID of a sandbox before it has started"
	case f.Error == "" && f.DelayBefore == 0 && f.DelayAfter == 0:
		return "it does nothing"
	}
	return ""
}
