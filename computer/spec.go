package computer

import (
	"regexp"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
)

// Limits of the program of a Spec. Operations of the API may have narrower ones.
const (
	maxArguments = 1024
	maxVariables = 1024
	// maxProgramBytes limits the arguments, and the environment, each with a byte that ends every string.
	maxProgramBytes = 128 << 10
)

var (
	validID    = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)
	validGroup = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}(:[A-Za-z0-9_-]{1,64})?$`)
)

// Validate returns invalid_request unless a driver may start a process with the spec. Whether Cwd and the program exist, only the
// driver can tell.
func (s Spec) Validate() error {
	switch {
	case !validID.MatchString(s.ID):
		return entity.Errorf(entity.InvalidRequest, "the id of a process must have 1 to 64 letters, digits and underscores")
	case !validGroup.MatchString(s.Group):
		return entity.Errorf(entity.InvalidRequest, "the group of a process must be a word, or a word, a colon and an id")
	case s.Limits.MemoryBytes < 0 || s.Limits.Processes < 0 || !(s.Limits.Processors >= 0):
		return entity.Errorf(entity.InvalidRequest, "the limits of a process must not be negative")
	case s.Private && s.OwnNetwork:
		return entity.Errorf(entity.InvalidRequest, "a private process has the network of its computer")
	case strings.Contains(s.Cwd, "\x00"):
		return entity.Errorf(entity.InvalidRequest, "cwd must not contain NUL characters")
	}
	return checkProgram(s.Argv, s.Env, s.Terminal)
}

// checkProgram returns invalid_request unless a process may have the arguments, the environment, and the terminal, which may be
// nil.
func checkProgram(argv, env []string, terminal *TerminalSize) error {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return entity.Errorf(entity.InvalidRequest, "argv must begin with the name of a program")
	case len(argv) > maxArguments || programBytes(argv) > maxProgramBytes:
		return entity.Errorf(entity.InvalidRequest, "argv must have at most %d strings and %d bytes", maxArguments, maxProgramBytes)
	case len(env) > maxVariables || programBytes(env) > maxProgramBytes:
		return entity.Errorf(entity.InvalidRequest, "env must have at most %d variables and %d bytes", maxVariables, maxProgramBytes)
	}
	for _, text := range slices.Concat(argv, env) {
		if strings.Contains(text, "\x00") {
			return entity.Errorf(entity.InvalidRequest, "argv and env must not contain NUL characters")
		}
	}
	for _, variable := range env {
		if name, _, has := strings.Cut(variable, "="); !has || !entity.IsVariableName(name) {
			return entity.Errorf(entity.InvalidRequest, "the variables of env must have the form NAME=value")
		}
	}
	if terminal != nil {
		return terminal.Validate()
	}
	return nil
}

func programBytes(texts []string) (bytes int) {
	for _, text := range texts {
		bytes += len(text) + 1
	}
	return bytes
}

// Validate returns invalid_request unless columns and rows are within their bounds.
func (s TerminalSize) Validate() error {
	if min(s.Columns, s.Rows) < 1 || max(s.Columns, s.Rows) > MaxTerminalSize {
		return entity.Errorf(entity.InvalidRequest, "columns and rows must be from 1 to %d", MaxTerminalSize)
	}
	return nil
}
