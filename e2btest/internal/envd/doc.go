// Package envd is the daemon inside an emulated sandbox: an [http.Handler] that
// answers as E2B's envd does. It starts real processes and works on real files, so
// it belongs into a process of its own, best into pid 1 of own namespaces. Where
// there are none, Config.Root confines it to one directory; that is what the
// package calls plain mode, and it protects files from mistakes, not from commands,
// which can do whatever the process can.
//
// # Differences from E2B
//
// Processes:
//
//   - A command is found by its tag whatever else is running; of several, the one
//     that was started first. List is sorted by pid.
//   - Every command has a process group of its own, a command with a terminal also a
//     session, so that "kill 0" reaches neither other commands nor the daemon. What
//     is left of a group is killed when the Server is closed.
//   - A reader that stops reading stops the other readers of the same command for a
//     second at most. Then it gets what was queued for it, and the error
//     resource_exhausted. While no reader takes anything, the command waits.
//   - Keepalive-Ping-Interval below 1 is answered with invalid_argument; it does not
//     bring the daemon down. So is a negative Connect-Timeout-Ms, and a stream of
//     input that does not name its process first.
//   - When a call of SendInput is cancelled, what is not yet in the pipe is not
//     written.
//   - Priority, I/O class and oom_score_adj of commands stay as they are.
//
// Files:
//
//   - Remove refuses an empty path, which would mean the home directory, and the
//     root directory.
//   - A named pipe or a socket cannot be downloaded, and a pipe that nobody reads
//     cannot be uploaded to; neither hangs.
//   - Where the file system keeps no extended attributes, metadata is kept in memory
//     under the file's name: the Server's own Move and Remove follow it, those of
//     commands do not.
//   - A recursive watch repeats itself less often. Network file systems can always
//     be watched. A watcher that is not polled fails after 262144 events.
//
// Both: one message has at most 256 MiB, the body of /files/compose 8 MiB. The user
// agent connect-python is not special. The control routes (/init, /freeze and so
// on) are not there: outside a real machine the proxy in front answers them.
//
// In plain mode there are, besides, only paths in the directory. Others, and links
// that lead out of it, are answered with invalid_argument or 400 and a message that
// says why; a link that leads out looks like a broken one.
package envd
