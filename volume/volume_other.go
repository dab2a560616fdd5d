//go:build !linux

package volume

// Measure returns a file system without limits: it is measured on Linux alone.
func Measure(string) (Usage, error) {
	return Usage{FreeBytes: Unlimited, FreeFiles: Unlimited, UsedFiles: Unlimited}, nil
}
