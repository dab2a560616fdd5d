package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
)

// socketName is the operators' socket in the data directory.
const socketName = "atelier.sock"

// longestSocket is what Linux takes for a socket's path (unix(7)), without the end of the text.
const longestSocket = 107

// makeData makes the data directory, for its owner alone. One that others may enter is closed to them where nothing else
// lies in it.
func makeData(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory: %w", err)
	}
	at, err := os.Stat(dir)
	if err != nil || at.Mode().Perm()&0o077 == 0 {
		return err
	}
	own, err := onlyOurs(dir)
	if err != nil {
		return fmt.Errorf("the data directory: %w", err)
	}
	if !own {
		log.Warn("the data directory may be entered by others, and holds what is not a node's", slog.String("dir", dir))
		return nil
	}
	return os.Chmod(dir, 0o700)
}

func onlyOurs(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	ours := len(entries) == 0
	for _, entry := range entries {
		ours = ours || entry.Name() == "journal"
	}
	return ours, nil
}

// listenAdmin opens the operators' socket. The caller holds the journal's lock, so that a socket that is there was left
// by a process that has ended.
func listenAdmin(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketName)
	if len(path) > longestSocket {
		return nil, fmt.Errorf("the socket %s: its path has more than %d bytes, which the system does not take", path, longestSocket)
	}
	switch at, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case at.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is in the way of the operators' socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
