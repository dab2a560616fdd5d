package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCommand struct{}

func (versionCommand) Run(out console) error {
	_, err := fmt.Fprintln(out.out, "atelier", version())
	return err
}

// build is what the program was built from.
type build struct {
	module, revision string
	modified         bool
}

func version() build {
	var b build
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.module = info.Main.Version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.revision = setting.Value
		case "vcs.modified":
			b.modified = setting.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	parts := []string{b.module}
	if b.module == "" || b.module == "(devel)" {
		parts[0] = "devel"
	}
	if b.revision != "" {
		parts = append(parts, b.revision)
	}
	if b.modified {
		parts = append(parts, "modified")
	}
	return strings.Join(append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), " ")
}
