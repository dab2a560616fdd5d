package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// longestSecret is the size of the largest file with a secret, in bytes.
const longestSecret = 4 << 10

// readSecret returns the content of the file at path, without the line break at its end, or "" if path is empty. It returns an
// error with the exit code exitConfig that names the setting if the file cannot be read, or is not one line of 1 to longestSecret
// bytes. Secrets are read from files because other users of the machine can see the flags of a process.
func readSecret(setting, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", coded{fmt.Errorf("%s: %w", setting, err), exitConfig}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longestSecret+1))
	secret := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", coded{fmt.Errorf("%s: %w", setting, err), exitConfig}
	case secret == "", len(text) > longestSecret, strings.ContainsAny(secret, "\r\n\x00"):
		return "", coded{fmt.Errorf("%s: the file %s must contain one line of 1 to %d bytes", setting, path, longestSecret), exitConfig}
	}
	return secret, nil
}
