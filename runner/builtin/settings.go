package builtin

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/runner/builtin/model"
)

const (
	// own begins the names of the agent's own variables, which other programs do not get.
	own          = "ATELIER_AGENT_"
	driveVar     = "ATELIER_DRIVE"
	answerVar    = "ATELIER_ANSWER"
	defaultDrive = "/drive"
	mostTokens   = 1_000_000
)

// settings are the agent's settings.
type settings struct {
	// model is nil for runbooks; server is the model's server.
	model  model.Model
	server model.Server
	drive  string
	// environ is the environment of commands and servers.
	environ []string
}

// newSettings reads the settings from an environment.
func newSettings(environ []string) (settings, error) {
	variables := map[string]string{}
	var s settings
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		variables[name] = value
		if !strings.HasPrefix(name, own) {
			s.environ = append(s.environ, variable)
		}
	}
	s.drive = variables[driveVar]
	if at, err := os.Stat(defaultDrive); s.drive == "" && err == nil && at.IsDir() {
		s.drive = defaultDrive
	}
	if variables[own+"MODEL"] == "" {
		return s, nil
	}
	server := model.Server{
		Wire: model.Wire(variables[own+"WIRE"]), BaseURL: variables[own+"BASE_URL"],
		Model: variables[own+"MODEL"], Key: variables[own+"API_KEY"],
	}
	if server.Wire == "" {
		server.Wire = model.Chat
	}
	if text := variables[own+"MAX_TOKENS"]; text != "" {
		var err error
		if server.MaxTokens, err = strconv.Atoi(text); err != nil || server.MaxTokens < 1 || server.MaxTokens > mostTokens {
			return settings{}, fmt.Errorf("%sMAX_TOKENS is not a number from 1 to %d", own, mostTokens)
		}
	}
	var err error
	s.server = server
	s.model, err = model.New(server)
	return s, err
}

// protect makes the environment and the memory of this process inaccessible to other processes of the same user.
func protect() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
