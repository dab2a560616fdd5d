package local

import (
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local/sandbox"
	"github.com/atelier-run/atelier/entity"
)

// errSpec returns the error invalid_request.
func errSpec(format string, arguments ...any) error {
	return entity.Errorf(entity.InvalidRequest, format, arguments...)
}

// validate returns invalid_request if a spec is unusable, and makes its working directory a path below the drive.
func validate(s *computer.Spec) error {
	if err := s.Validate(); err != nil {
		return err
	}
	cleaned := path.Clean(s.Cwd)
	if len(s.Cwd) > unix.PathMax || path.IsAbs(cleaned) || cleaned == ".." || strings.HasPrefix(cleaned, "../") {
		return errSpec("the working directory %q is not a path of the drive", s.Cwd)
	}
	s.Cwd = cleaned
	return nil
}

func validateSignal(s syscall.Signal) error {
	if s < 1 || s > 64 {
		return errSpec("%d is not a signal", int(s))
	}
	return nil
}

// argv returns the arguments of a process. Without isolation there is nothing at computer.ProgramPath, and program is the path of the
// server's program.
func (d *Driver) argv(asked []string) (argv []string, program string, err error) {
	if !d.report.Unisolated {
		return asked, "", nil
	}
	program, err = d.program.Path()
	if asked[0] != computer.ProgramPath {
		return asked, program, nil // without the server's program, if it was replaced and cannot be copied
	}
	if err != nil {
		return nil, "", err
	}
	return append([]string{program}, asked[1:]...), program, nil
}

// environment returns the environment of a process. Variables of the spec replace variables of the driver.
func (d *Driver) environment(workspaceID string, s *computer.Spec) []string {
	home := sandbox.Home
	if d.report.Unisolated {
		home = d.home(workspaceID)
	}
	all := []string{
		"HOME=" + home, "USER=atelier", "LOGNAME=atelier", "SHELL=/bin/sh", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	if s.Private && !d.report.Unisolated {
		all = append(all, "ATELIER_PRIVATE="+sandbox.PrivateDir)
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
