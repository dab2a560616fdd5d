// Package openapi tests the OpenAPI document that a node serves with tools that others wrote: the linters Redocly CLI and
// Spectral, and openapi-typescript, whose types the TypeScript compiler checks together with a program that uses them.
package openapi
