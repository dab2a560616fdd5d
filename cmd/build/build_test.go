package build

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestBuildString checks the line for builds with all, some and no facts about the commit.
func TestBuildString(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, test := range []struct {
		name, want string
		info       debug.BuildInfo
	}{
		{"released", "v1.2.3 (commit abc, 2026-11-22T01:02:03Z, go1.26.8, " + platform + ")", debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-11-22T01:02:03Z"}, {Key: "vcs.modified", Value: "false"}},
		}},
		{"locally_changed", "devel (commit abc with local changes, go1.26.8, " + platform + ")", debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
		}},
		{"without_repository", "devel (go1.26.8, " + platform + ")", debug.BuildInfo{GoVersion: "go1.26.8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := newInfo(&test.info).String(); got != test.want {
				t.Errorf("String() = %q, want %q", got, test.want)
			}
		})
	}
}
