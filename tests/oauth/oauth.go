// Package oauth tests the authorization server over HTTP on a node: its flow as a browser without scripts and a client
// go through it, every refusal, what a replay ends, and a client library that others wrote (client.mjs).
package oauth
