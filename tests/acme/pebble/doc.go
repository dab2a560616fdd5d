// Package pebble pins the version of the ACME authority that package acme starts for tests. It is a separate module, so that the
// dependencies of the authority do not become dependencies of Atelier.
package pebble
