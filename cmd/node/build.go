package node

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Build is what a program was built from, as Go has recorded it. Fields that Go does not know are empty: a program that was
// built outside of a repository, or with -buildvcs=false, has neither Commit nor Date.
type Build struct {
	// Version is the version of the module: a tag, a pseudo-version, or "devel".
	Version string
	// Commit is the full hash of the commit.
	Commit string
	// Date is the time of the commit, as RFC 3339 has it, in UTC.
	Date string
	// Modified reports that files differed from the commit.
	Modified bool
	// Go is the version of the toolchain.
	Go string
}

// ReadBuild returns what this program was built from.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "devel", Go: runtime.Version()}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) Build {
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

// String returns one line: the version, then the commit, its date, the toolchain and the platform in parentheses.
func (b Build) String() string {
	var details []string
	if b.Commit != "" {
		commit := "commit " + b.Commit
		if b.Modified {
			commit += " with changes"
		}
		details = append(details, commit)
	}
	if b.Date != "" {
		details = append(details, b.Date)
	}
	details = append(details, b.Go, runtime.GOOS+"/"+runtime.GOARCH)
	return b.Version + " (" + strings.Join(details, ", ") + ")"
}

// gauge returns the metric that tells which build a node is. Its value is always 1.
func (b Build) gauge() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "atelier_build_info", Help: "What the program was built from. The value is 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
	})
	g.Set(1)
	return g
}
