package webdav_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/atelier-run/atelier/tests/unprivileged"
)

// TestFullDisk runs on a file system of 1 MiB.
func TestFullDisk(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), activity: newActivity()}
	testmachine.Mount(t, s.dir, "size=1m")
	s.start()
	s.do("PUT", "/a", "old").is(201)
	s.do("PUT", "/a", strings.Repeat("x", 2<<20)).is(507).says("insufficient_storage")
	s.do("PUT", "/half", strings.Repeat("x", 600<<10)).is(201)
	s.do("COPY", "/half", "", "Destination: "+prefix+"/other").is(507)
	if got := s.content("a"); got != "old" || len(s.staged()) > 0 {
		t.Errorf("content %q, staged %v", got, s.staged())
	}
	s.rows("create file a", "create file half")
}

func TestMetrics(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "12345").is(201)
	s.do("PUT", "/x/a", "1").is(409) // a small upload is received before it is refused
	s.do("GET", "/a", "").is(200)
	s.do("DELETE", "/a", "").is(204)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.drives)
	s.eventually(func() bool { return counters(t, registry)["read ok"] == 1 })
	got := counters(t, registry)
	for name, want := range map[string]float64{"in": 6, "out": 5, "create ok": 1, "delete ok": 1, "write no_parent": 1} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// counters returns the values of the counters by their labels.
func counters(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			counts[strings.Join(labels, " ")] = metric.GetCounter().GetValue()
		}
	}
	return counts
}

// TestSweepDeletesLeftoversOfEarlierProcess puts entries into the staging folder that belong to no operation.
func TestSweepDeletesLeftoversOfEarlierProcess(t *testing.T) {
	s := serve(t)
	s.stop()
	for _, name := range []string{"01leftover", "02leftover.trash/deep"} {
		if err := os.MkdirAll(filepath.Join(s.dir, workspace, "tmp", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	s.do("PROPFIND", "/", "", "Depth: 0").is(http.StatusMultiStatus)
	s.eventually(func() bool { return len(s.staged()) == 0 })
}

func (s *site) chmod(path string, mode os.FileMode) {
	s.t.Helper()
	if err := os.Chmod(s.files(path), mode); err != nil {
		s.t.Fatal(err)
	}
}

func TestFilesWithoutReadPermission(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("MKCOL", "/d/closed", "").is(201)
	s.do("PUT", "/d/a", "1").is(201)
	s.do("PUT", "/d/b", "1").is(201)
	s.chmod("d/a", 0)
	s.chmod("d/closed", 0)
	s.do("GET", "/d/a", "").is(403).says(`"forbidden"`)
	s.do("PROPFIND", "/d", "", "Depth: 1").is(207).says("/d/a<", "/d/b<", "/d/closed/<", "</D:multistatus>")
	s.do("PROPFIND", "/d/a", "", "Depth: 0").is(207).says("200 OK")
	// The entry may exist, so neither condition may be evaluated as if it did not.
	s.do("PROPPATCH", "/d/closed/x", propertyUpdate(`<m xmlns="urn:x"/>`), "If-Match: *").is(403)
	s.do("PROPPATCH", "/d/closed/x", propertyUpdate(`<m xmlns="urn:x"/>`), "If-None-Match: *").is(403)
	s.chmod("d/closed", 0o700)
}

func TestPutReplacesReadOnlyFileWithProperties(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	s := serve(t)
	s.do("PUT", "/a", "1").is(201)
	s.do("PROPPATCH", "/a", propertyUpdate(`<m xmlns="urn:x">kept</m>`)).is(207).says("200 OK")
	s.chmod("a", 0o444)
	s.do("PUT", "/a", "2").is(204)
	s.do("PROPFIND", "/a", "", "Depth: 0").is(207).says("kept")
	if info, err := os.Stat(s.files("a")); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestDeletedFoldersWithoutWritePermission(t *testing.T) {
	if !unprivileged.Run(t) {
		return
	}
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	s.do("MKCOL", "/d/sealed", "").is(201)
	s.do("MKCOL", "/d/sealed/inner", "").is(201)
	s.do("PUT", "/d/sealed/inner/a", "1").is(201)
	s.chmod("d/sealed/inner", 0o555)
	s.chmod("d/sealed", 0o555)
	s.do("DELETE", "/d", "").is(204)
	s.eventually(func() bool { return len(s.staged()) == 0 })
}
