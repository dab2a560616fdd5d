// Package rules holds the house rules that a machine can check, as tests.
package rules
