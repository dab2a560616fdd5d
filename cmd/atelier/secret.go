package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// longestSecret limits the bytes of a file with a secret.
const longestSecret = 4 << 10

// readSecret returns the content of the file that a setting names, without the end of its line, or "" if path is empty. It
// returns a usage error if the file does not have exactly one line. Secrets come from files because other users of the machine
// can read flags.
func readSecret(setting, path string) (string, error) {
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
		return "", coded{fmt.Errorf("%s: %s must have one line of at most %d bytes", setting, path, longestSecret), exitUsage}
	}
	return secret, nil
}
