package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// longestSecret bounds what is read of a file that holds one.
const longestSecret = 4 << 10

// secretOf is what a file holds that a setting names, without the end of its line; "" where none is named. Secrets come
// from files: others on the machine can read flags, and what starts a process its variables.
func secretOf(setting, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", coded{fmt.Errorf("%s: %w", setting, err), exitUsage}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestSecret+1))
	secret := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", coded{fmt.Errorf("%s: %w", setting, err), exitUsage}
	case secret == "", len(text) > longestSecret, strings.ContainsAny(secret, "\r\n\x00"):
		return "", coded{fmt.Errorf("%s: %s does not hold one line of at most %d bytes", setting, path, longestSecret), exitUsage}
	}
	return secret, nil
}
