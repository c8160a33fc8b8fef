// Package conformance is a suite of checks for E2B servers: E2B itself, self-hosted
// ones, compatible ones, and the emulator in e2btest. It sees a server as a client
// does, by URL and key, and holds against it what E2B's own servers were seen to
// answer: statuses, messages, headers, times to live, events and their order. It
// does not use this module's client.
//
//	report, err := conformance.Run(ctx, conformance.Target{APIKey: key}, nil)
//	if err != nil {
//		return err
//	}
//	err = report.WriteText(os.Stdout)
//
// In a test it is one line, see [Test]; for everything else there is the program
// cmd/e2b-conformance. Each check ends as pass, as fail with what was expected and
// what was seen, as unsupported where the server says that it does not have what is
// checked (no such route, not for this team, no such kernel or module, an older
// envd), or as not run. [Checks] has their names. The areas are:
//
//   - errors: keys, routes, IDs and bodies that are refused, and how
//   - lifecycle: create, connect, pause, kill, and the rules for timeouts
//   - snapshots: also forks
//   - list: filters, pages, order
//   - network, metrics, logs, team (volumes, secrets, events)
//   - proxy: how sandboxes are found, and what is said where one is not
//   - envd: processes, terminals, the protocol and its two codecs
//   - files: upload, download, signed URLs, directories, watchers
//   - interpreter: code, its results, contexts
//
// # What it needs
//
// An API key of a team that can run Options.Parallel + 3 sandboxes at a time, and two
// templates, which Target names. When the API says that it is asked too often, the
// kit waits as it is told.
//
// # What it costs
//
// A whole run makes about 30 sandboxes. Three of them live until its end, the others
// for a few seconds each. MaxSandboxes, Checks and Limit make it less.
//
// # What it leaves behind
//
// Nothing: what a check made is deleted when the check ends, also when it fails or ctx
// ends. In the end the kit looks for sandboxes that have the run's metadata, whose key
// is e2b-conformance, and for snapshots of them, deletes those whose creation it did
// not hear of, and reports what the server still shows. If the program is killed, its
// sandboxes end by their timeouts, 10 minutes or less; those that were paused stay.
//
// # What the emulator does not support
//
// Against e2btest on Linux all checks pass, except for these, which are unsupported:
//
//   - team/events: E2B's events of sandboxes are in no recorded exchange.
//   - interpreter/dataframe: where python3 has no pandas.
//   - interpreter/chart: where python3 has no matplotlib.
//   - interpreter/javascript: where there is no node.
//
// Where its sandboxes are not isolated, envd/user fails, since all commands run as the
// emulator's own user.
package conformance
