package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/atelier-run/atelier/persistence/datadir"
)

// socketName is the operators' socket in the data directory.
const socketName = "atelier.sock"

// longestSocket is the longest path of a socket on Linux (unix(7)), without the terminating zero.
const longestSocket = 107

// makeData makes the data directory with the mode 0700. It refuses a directory with files that no node wrote: the node would mix its
// files with them and keep their owners out. If the directory belongs to another user, such as a Kubernetes volume with an fsGroup,
// the node cannot change the mode, and makeData logs a warning with the mode.
func makeData(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory: %w", err)
	}
	foreign, err := datadir.ForeignFiles(dir)
	if err != nil {
		return fmt.Errorf("the data directory: %w", err)
	}
	if len(foreign) > 0 {
		return coded{fmt.Errorf("the data directory %s holds no node, but other files (%s): name a directory with --data that is empty "+
			"or does not exist, or move these files away", dir, shortened(foreign)), exitConfig}
	}
	at, err := os.Stat(dir)
	if err != nil || at.Mode().Perm()&0o077 == 0 {
		return err
	}
	err = os.Chmod(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		log.Warn("the data directory belongs to another user, so that the node cannot close it to others: make the node's user its owner, "+
			"or give it the mode 0700", slog.String("data", dir), slog.String("mode", at.Mode().String()))
		return nil
	}
	return err
}

// shortened joins the first names of a list, and says how many follow.
func shortened(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// listenAdmin listens on the operators' socket. The caller holds the journal's lock, so that an existing socket was left by a
// process that has ended.
func listenAdmin(dir string) (net.Listener, error) {
	path := filepath.Join(dir, socketName)
	if len(path) > longestSocket {
		return nil, fmt.Errorf("the path of the socket %s has more than %d bytes, the limit of the system: choose a shorter --data", path, longestSocket)
	}
	return listenSocket(path, 0o600)
}

// socketPrefix begins the address of a socket in a setting.
const socketPrefix = "unix:"

// listenMetrics listens on the address of the metrics. The group of the node may connect to a socket.
func listenMetrics(address string) (net.Listener, error) {
	if path, is := strings.CutPrefix(address, socketPrefix); is {
		return listenSocket(path, 0o660)
	}
	return listen(address)
}

// listenSocket listens on a socket, in place of one that was left by a process that has ended.
func listenSocket(path string, mode fs.FileMode) (net.Listener, error) {
	switch at, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case at.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is not a socket: remove it, a socket of the node needs this name", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
