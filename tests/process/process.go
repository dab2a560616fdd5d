// Package process tests the whole program: real processes with real data directories, which are killed and started again.
package process
