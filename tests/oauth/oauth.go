// Package oauth tests the authorization server over HTTP on a node: the flow of a client and of a person with a browser
// without scripts, every refusal, the attacks of RFC 9700, client libraries that others wrote (*.mjs), and the sign-in by a real
// OpenID Connect provider (oidc-provider.mjs).
package oauth
