// Package openapi tests the OpenAPI document that a node serves with third-party tools: the linters Redocly CLI and Spectral, and
// the generator openapi-typescript. The TypeScript compiler checks the generated types together with program.ts, which uses
// them.
package openapi
