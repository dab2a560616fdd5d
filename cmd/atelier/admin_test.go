package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// answer serves an operator's commands over a data directory, and returns it.
func answer(t *testing.T, handler http.HandlerFunc) (dir string) {
	t.Helper()
	dir = t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return dir
}

// TestBackupScheduleFlags has flags that the node would understand as another schedule, or not at all.
func TestBackupScheduleFlags(t *testing.T) {
	var got string
	dir := answer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + string(body)
		io.WriteString(w, `{"schedule":{}}`)
	})
	for _, test := range []struct{ flags, want string }{
		{"--every=500ms", ""}, // not 0 seconds, which turn the backups off
		{"--every=1m0.5s", ""},
		{"--keep=3", ""},
		{"--off --keep=3", ""},
		{"", "GET"},
		{"--every=6h", `PUT{"everySeconds":21600,"inherit":false,"keep":7}`},
		{"--every=6h --keep=3", `PUT{"everySeconds":21600,"inherit":false,"keep":3}`},
		{"--off", `PUT{"inherit":false}`},
	} {
		got = ""
		var out, errs bytes.Buffer
		code := run(append([]string{"admin", "backup", "schedule", "--data", dir, "--slug", "demo"}, strings.Fields(test.flags)...), console{&out, &errs})
		if got != test.want || test.want == "" && code != exitConfig || test.want != "" && code != 0 {
			t.Errorf("%s: status %d, request %q, %s", test.flags, code, got, errs.String())
		}
	}
}

// TestNodeBackupWithoutResult has a node that ends its answer before the result.
func TestNodeBackupWithoutResult(t *testing.T) {
	dir := answer(t, func(http.ResponseWriter, *http.Request) {})
	var out, errs bytes.Buffer
	code := run([]string{"admin", "backup", "node", "--data", dir, "--to", dir}, console{&out, &errs})
	if code != exitFailure || errs.String() != "atelier: the node has ended before the backup was complete\n" {
		t.Errorf("status %d, %s", code, errs.String())
	}
}

// TestNodeBackupWithLongLine has a backup that lacks so many drives that its line has more than 64 KiB.
func TestNodeBackupWithLongLine(t *testing.T) {
	backup := `{"backupId":"nbk_1","failed":[{"workspaceId":"ws_1","reason":"` + strings.Repeat("x", 100<<10) + `"}]}`
	dir := answer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"backup":`+backup+"}\n") })
	var out, errs bytes.Buffer
	code := run([]string{"admin", "backup", "node", "--data", dir, "--to", dir}, console{&out, &errs})
	if code != exitIncomplete || out.String() != backup+"\n" {
		t.Errorf("status %d, %d bytes, %.200s", code, out.Len(), errs.String())
	}
}

// TestLongAnswers has a node with an answer of the greatest length that an operator's command reads, and a longer answer.
func TestLongAnswers(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	items := `{"items":["` + strings.Repeat("x", longestAnswer-len(`{"items":[""]}`)) + `"]}`
	answers := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, <-answers) })}
	go server.Serve(listener)
	defer server.Close()
	for answer, want := range map[string]string{items: "", items + "\n": "the answer of the node to GET /admin/workspaces"} {
		answers <- answer
		var out, errs bytes.Buffer
		code := run([]string{"admin", "workspace", "list", "--data", dir}, console{&out, &errs})
		if want == "" && (code != 0 || out.Len() < longestAnswer/2) || want != "" && (code == 0 || !strings.Contains(errs.String(), want)) {
			t.Errorf("an answer of %d bytes: status %d, %d bytes, %.200s", len(answer), code, out.Len(), errs.String())
		}
	}
}

// TestIncompleteBackup has backups that lack files and drives which the node could not read: they are printed, and the exit code says so.
func TestIncompleteBackup(t *testing.T) {
	backup := `{"backupId":"bkp_1","unreadableFiles":2,"unreadablePaths":["\"a b\"","\"c\""]}`
	dir := answer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/node/backups"):
			io.WriteString(w, `{"backup":{"backupId":"nbk_1","unreadableFiles":3,"failed":[{"workspaceId":"ws_1","reason":"denied"}]}}`+"\n")
		case r.Method == http.MethodPost:
			io.WriteString(w, `{"taskId":"tsk_1","backupId":"bkp_1"}`)
		case strings.HasSuffix(r.URL.Path, "/backups"):
			io.WriteString(w, `{"items":[`+backup+`]}`)
		default:
			io.WriteString(w, `{"computer":{}}`)
		}
	})
	for command, want := range map[string]struct {
		code        int
		out, errors string
	}{
		"create --slug=demo": {exitIncomplete, backup,
			`atelier: the backup bkp_1 lacks 2 files and folders that the node may not read, such as "a b" "c"`},
		"verify --slug=demo --backup=bkp_1": {0, backup, ""},
		"node --to=" + dir: {exitIncomplete, `{"backupId":"nbk_1","unreadableFiles":3,"failed":[{"workspaceId":"ws_1","reason":"denied"}]}`,
			"the backup lacks the drive of ws_1: denied"},
	} {
		var out, errs bytes.Buffer
		code := run(append([]string{"admin", "backup"}, append(strings.Fields(command), "--data", dir)...), console{&out, &errs})
		if code != want.code || strings.TrimSpace(out.String()) != want.out || !strings.Contains(errs.String(), want.errors) {
			t.Errorf("%s: status %d, %s%s", command, code, out.String(), errs.String())
		}
	}
}
