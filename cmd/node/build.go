package node

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Build identifies the source and the toolchain of a program, as the go command recorded them in the binary. Unknown fields are
// empty: a program that was built outside of a repository, or with -buildvcs=false, has neither Commit nor Date.
type Build struct {
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

// ReadBuild returns the build of the running program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "devel", Go: runtime.Version()}
	}
	return newBuild(info)
}

// newBuild returns the build that info describes.
func newBuild(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Go: info.GoVersion}
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
func (b Build) String() string {
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

// gauge returns a metric whose labels identify the build. Its value is always 1.
func (b Build) gauge() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "atelier_build_info", Help: "The version, commit and Go version of the program, as labels. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
	})
	g.Set(1)
	return g
}
