// Package e2btest is an E2B server inside your test process: what net/http/httptest
// is to net/http. It needs no account, no key and no network.
//
//	func TestAgent(t *testing.T) {
//		server, client := e2btest.New(t, nil)
//		sbx, err := client.Create(t.Context(), &e2b.CreateOptions{OnTimeout: e2b.TimeoutPause})
//		if err != nil {
//			t.Fatal(err)
//		}
//		server.Advance(time.Hour) // its time is over: it pauses itself
//		info, err := sbx.Info(t.Context())
//		if err != nil || info.State != e2b.StatePaused {
//			t.Fatal(info, err)
//		}
//	}
//
// Its control plane answers as E2B's: the same states and transitions, statuses,
// messages, times to live, pages and filters, on the older and on the newer
// routes. Its sandboxes are real processes of this machine. On Linux, where
// namespaces can be used, each has an own root directory, own processes and an
// own network without a way out; elsewhere they are plain processes in a private
// directory, which [Server.Isolated] tells. Any E2B client in any language can use
// it: it listens on loopback, and cmd/e2b-local is this package as a program.
//
// With [Options].Run or [Options].Code it is scripted instead: Go functions stand in for
// commands and code, nothing is started, nothing listens, and all of it can be in a
// bubble of testing/synctest.
//
// Faults make it fail as servers, their machines and networks do, from a busy server to a
// stream that breaks off in the middle of a message: see [Fault]. [Server.Requests] has what was asked, and
// [Server.Sandboxes] all sandboxes with what runs in them and the time that E2B would
// bill. With [Options].StateDir the next server goes on with what one has left, without
// memory. Package conformance holds any server, this one too, against what E2B answers.
//
// # Where it differs from E2B
//
//   - A sandbox is no virtual machine: it has this machine's kernel, system
//     directories (read-only), processor and memory. The numbers of processors and
//     bytes in its info are fixed.
//   - Templates are names. Each has what this machine has. In code-interpreter, code
//     runs with this machine's programs: Python with the python3 on the PATH, which
//     [Server.Python] names, JavaScript with the node on it, and Bash. A language whose
//     program is missing is answered as one without a kernel, as are R, Java and
//     TypeScript.
//   - Matplotlib, pandas and other packages are there if that python3 has them; figures
//     come with their charts. Of IPython there is what code for notebooks uses most.
//   - Code contexts start when they are first used. Output is never dropped, however fast
//     it comes. Bash code has no terminal, and a call that comes right after a cancelled
//     one is not lost, unless [Options].HangAfterCancel says so.
//   - A sandbox that was paused, resumed and then killed by its timeout is paused
//     again, as on E2B, but in its newest state: E2B goes back to the state of the
//     last pause.
//   - The kernel of a sandbox is shared, so its root has less power than a machine's: it
//     mounts nothing and makes no namespaces. Volumes cannot be in the directories that
//     are this machine's.
//   - The API takes API keys, not the tokens of E2B's own services and web pages.
//   - A paused sandbox can be resumed without its memory, which E2B allows some teams only.
//   - Rules for outgoing traffic are shown again and have no effect.
//   - Metrics are what the sandbox's own processes and files use, where the system
//     tells; on macOS it does not tell of memory, and a scripted server has none. The
//     totals are fixed, so what is used can exceed them. Time that Advance skips shows
//     what was measured before it. The ID of the team is local, unless it is one of
//     [Options].Teams, whose name is its ID.
//   - The log of a sandbox has its creation, its pauses, its resumes and its end, and
//     nothing else, all on level info.
//   - Volumes are directories that isolated sandboxes share. Others are shown them and
//     have none. Nothing serves their content from outside.
//   - Values of secrets are not even kept, since nothing uses them.
//   - Snapshots and forks carry files, and no process: a sandbox from one boots, as after
//     a pause without memory. It has the environment variables of the one that it came from. In
//     sandboxes that are not isolated, paths are those of this machine, so what holds an
//     absolute one still leads to the files of the other sandbox.
//   - Routes for builds of templates are missing. They answer as unknown routes do, and
//     the log names them.
//   - Rate limits are none but those of [Options].RateLimits. A machine that is full says
//     so at once, where E2B tries for 70 s.
//   - URLs that expire do so by the server's clock; the SDK signs them by that of this
//     machine, so after Advance a short one has expired when it is made.
//   - URLs that the JavaScript SDKs sign with E2B_SANDBOX_URL name no sandbox: a request for
//     one needs the headers E2b-Sandbox-Id and E2b-Sandbox-Port.
//   - Commands of a scripted server get their input at once and as it is, also from a
//     terminal. While their sandbox is paused they go on until they read or write.
//   - The page that browsers see instead of a JSON error is a plain one.
package e2btest
