// Package process tests the program whole: real processes over real directories, killed and started again.
package process
