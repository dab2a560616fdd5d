// Package gate tests the scripts that run the tests: the output of .ci/run when a test fails, hangs or is unsteady. Each test plants
// one fault in a small module with copies of the scripts.
package gate
