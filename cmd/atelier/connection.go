package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/atelier-run/atelier/client"
)

// serverFlags name a server and a key for it.
type serverFlags struct {
	URL     string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Address of the server. Plain http is allowed on a loopback address alone."`
	KeyFile string `type:"path" placeholder:"FILE" help:"File with an API key. Default: the key in the variable ATELIER_KEY, or else that of serve --quickstart in the data directory."`
	Data    string `default:"data" type:"path" placeholder:"DIR" help:"Data directory of a node on this machine, for the key of serve --quickstart."`
}

// keyVariable is the environment variable with a key. It is no flag, because other users of the machine can see flags.
const keyVariable = "ATELIER_KEY"

// connect returns a client for the server. The caller closes it.
func (s *serverFlags) connect() (*client.Client, error) {
	at, err := checkURL("url", s.URL)
	if err != nil {
		return nil, coded{err, exitConfig}
	}
	key, err := s.key()
	if err != nil {
		return nil, err
	}
	return client.New(at.String(), key)
}

// key returns the key in the first place that is set: the file, the variable, the data directory.
func (s *serverFlags) key() (string, error) {
	if s.KeyFile != "" {
		return readSecret("key-file", s.KeyFile)
	}
	if key := os.Getenv(keyVariable); key != "" {
		return key, nil
	}
	path := filepath.Join(s.Data, quickstartKey)
	if _, err := os.Stat(path); err != nil {
		return "", coded{fmt.Errorf("there is no key: set %s or --key-file, or name the data directory of a node that was started with --quickstart (%w)", keyVariable, err), exitConfig}
	}
	return readSecret("data", path)
}
