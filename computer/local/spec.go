package local

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// maxArguments limits the bytes of the arguments and of the environment of a process together.
const maxArguments = 1 << 20

var (
	validID       = regexp.MustCompile(`^[A-Za-z0-9_]{1,100}$`)
	validGroup    = regexp.MustCompile(`^[a-z_]{1,50}(:[A-Za-z0-9_-]{1,100})?$`)
	validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func errSpec(format string, arguments ...any) error {
	return entity.Errorf(entity.InvalidRequest, format, arguments...)
}

// validate returns InvalidRequest if a spec is unusable, and makes its working directory a path below the drive.
func validate(s *computer.Spec) error {
	size := 0
	for _, text := range slices.Concat(s.Argv, s.Env) {
		size += len(text) + 1
		if strings.Contains(text, "\x00") {
			return errSpec("an argument or a variable has a zero byte")
		}
	}
	switch {
	case !validID.MatchString(s.ID):
		return errSpec("the id of a process has 1 to 100 letters, digits and underscores")
	case !validGroup.MatchString(s.Group):
		return errSpec("the group of a process is a word, or a word, a colon and an id")
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return errSpec("no program is given")
	case size > maxArguments:
		return errSpec("the arguments and variables have %d bytes, at most %d are allowed", size, maxArguments)
	case s.Limits.MemoryBytes < 0 || s.Limits.Processes < 0 || !(s.Limits.Processors >= 0):
		return errSpec("a limit is negative")
	}
	for _, variable := range s.Env {
		if name, _, has := strings.Cut(variable, "="); !has || !validVariable.MatchString(name) {
			return errSpec("a variable must be of the form NAME=value")
		}
	}
	if s.Terminal != nil {
		if err := validateSize(*s.Terminal); err != nil {
			return err
		}
	}
	return validateCwd(s)
}

func validateCwd(s *computer.Spec) error {
	if strings.Contains(s.Cwd, "\x00") || len(s.Cwd) > unix.PathMax {
		return errSpec("the working directory is not a path")
	}
	cleaned := path.Clean(s.Cwd)
	if path.IsAbs(cleaned) || cleaned == ".." || strings.HasPrefix(cleaned, "../") {
		return errSpec("the working directory %q is not a path of the drive", s.Cwd)
	}
	s.Cwd = cleaned
	return nil
}

func validateSize(size computer.TerminalSize) error {
	if size.Columns < 1 || size.Rows < 1 || size.Columns > computer.MaxTerminalSize || size.Rows > computer.MaxTerminalSize {
		return errSpec("a terminal has 1 to %d columns and rows", computer.MaxTerminalSize)
	}
	return nil
}

func validateSignal(s syscall.Signal) error {
	if s < 1 || s > 64 {
		return errSpec("%d is not a signal", int(s))
	}
	return nil
}

// environment returns the environment of a process. Variables of the spec replace those that the driver provides.
func (d *Driver) environment(workspaceID string, s *computer.Spec) []string {
	home := sandbox.Home
	if d.report.Unisolated {
		home = d.home(workspaceID)
	}
	all := []string{
		"HOME=" + home, "USER=atelier", "LOGNAME=atelier", "SHELL=/bin/sh", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	if s.Terminal != nil {
		all = append(all, "TERM=xterm-256color")
	}
	if d.o.Network != nil {
		all = append(all, d.o.Network.Env()...)
	}
	for _, variable := range s.Env {
		name, _, _ := strings.Cut(variable, "=")
		all = slices.DeleteFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"=") })
		all = append(all, variable)
	}
	return all
}

func windowSize(size computer.TerminalSize) *unix.Winsize {
	return &unix.Winsize{Col: size.Columns, Row: size.Rows}
}
