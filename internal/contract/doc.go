// Package contract holds no code for users. Its tests check the control-plane
// requests that the SDK sends, and the recorded answers that its tests rely
// on, against E2B's published OpenAPI file. It is a module of its own, so that
// the OpenAPI library never becomes a dependency of the SDK.
package contract
