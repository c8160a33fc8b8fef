// Package e2b is a client for E2B sandboxes: microVMs in which an agent runs
// commands and code, and keeps its files, packages, variables and processes from
// one turn of a conversation to the next.
//
// A turn that ends with Pause costs nothing until the next one, which begins
// with Connect and finds everything as it was:
//
//	client, err := e2b.NewClient(nil) // $E2B_API_KEY
//	if err != nil {
//		return err
//	}
//	sbx, err := client.Create(ctx, &e2b.CreateOptions{Template: "code-interpreter"})
//	if err != nil {
//		return err
//	}
//	if _, err := sbx.RunCode(ctx, "x = 42", nil); err != nil {
//		return err
//	}
//	id := sbx.ID() // store it with the conversation
//	if _, err := sbx.Pause(ctx, nil); err != nil {
//		return err
//	}
//
//	// The next turn, perhaps in another process:
//	sbx, err = client.Connect(ctx, id, nil)
//	if err != nil {
//		return err
//	}
//	exec, err := sbx.RunCode(ctx, "x", nil)
//	fmt.Println(exec.Text()) // 42
//
// With CreateOptions.OnTimeout set to TimeoutPause the sandbox pauses itself when
// its lifetime ends, so that a turn that crashes costs little too.
//
// # Configuration
//
// A field of ClientOptions comes before its environment variable, and that
// before the default: E2B_API_KEY, E2B_DOMAIN, E2B_API_URL, E2B_SANDBOX_URL.
//
// # Context
//
// In a call that returns a value ctx bounds everything, waits between repeats
// included. In one that returns a handle it bounds the opening alone.
//
// # Errors
//
// errors.Is tells the kind of an error by the Err variables of this package, and
// errors.As finds an *APIError under each that came from a server. The comment of a
// call names the kinds to expect of it. Besides them any request can end with
// ErrUnauthenticated, ErrRateLimited, ErrServiceBusy or ErrRequestTimeout.
//
// Package e2btest has an E2B server for tests, which needs no account.
package e2b
