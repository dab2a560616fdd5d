// Package build describes the build of the running program.
package build

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Info identifies the source and the toolchain of a program, as the go command recorded them in the binary. Unknown fields are
// empty: a program that was built outside of a repository, or with -buildvcs=false, has neither Commit nor Date.
type Info struct {
	// Version is the version of the module: a tag, a pseudo-version, or "devel".
	Version string
	// Commit is the full hash of the commit.
	Commit string
	// Date is the time of the commit in UTC, in the format of RFC 3339.
	Date string
	// Modified reports whether the source differed from the commit.
	Modified bool
	// Go is the version of the Go toolchain.
	Go string
}

// Read returns the build of the running program.
func Read() Info {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: "devel", Go: runtime.Version()}
	}
	return newInfo(info)
}

// newInfo returns the build that info describes.
func newInfo(info *debug.BuildInfo) Info {
	b := Info{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			b.Date = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String returns one line: the version, followed by the commit, its date, the toolchain and the platform in parentheses.
func (b Info) String() string {
	var details []string
	if b.Commit != "" {
		commit := "commit " + b.Commit
		if b.Modified {
			commit += " with local changes"
		}
		details = append(details, commit)
	}
	if b.Date != "" {
		details = append(details, b.Date)
	}
	details = append(details, b.Go, runtime.GOOS+"/"+runtime.GOARCH)
	return b.Version + " (" + strings.Join(details, ", ") + ")"
}

// Gauge returns a metric with labels that identify the build. Its value is always 1.
func (b Info) Gauge() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "atelier_build_info", Help: "The version, commit and Go version of the program, as labels. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
	})
	g.Set(1)
	return g
}
