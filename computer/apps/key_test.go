package apps

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

func TestKeysOfProcesses(t *testing.T) {
	var dir string
	inWorld(t, func(o *Options) { dir = o.Dir }, func(w *world) {
		w.programs["serve"] = program{output: "my key is $KEY\n"}
		w.register(&appv1.Runtime{Command: "serve", ApiScopes: []string{"sessions", "files:read"}})
		w.started()[0].fail <- computer.Exit{Status: 1}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.do(&appv1.UpdateApp{ApiScopes: &appv1.Scopes{Scopes: []string{"sessions"}}})
		w.reconciled()
		all := w.started()
		if len(all) != 3 || all[0].key() != all[1].key() || all[1].key() == all[2].key() {
			t.Fatalf("of %d processes, the second must have the key of the first, and the third another", len(all))
		}
		for _, p := range all {
			_, secret, _ := strings.Cut(strings.TrimPrefix(p.key(), KeyStart), "_")
			expectNowhere(t, dir, secret)
			w.mu.Lock()
			for _, m := range w.got {
				if encoded, err := proto.Marshal(m); err != nil || strings.Contains(string(encoded), secret) {
					t.Errorf("%T has the key, or %v", m, err)
				}
			}
			w.mu.Unlock()
			if strings.Contains(w.log.String(), secret) {
				t.Error("the log of the server has the key")
			}
		}
		w.do(&appv1.RemoveApp{TaskId: "tsk_01jd0000000000000000000000"})
		if !w.await(w.t.Context(), (*appv1.App).GetRemoved) {
			t.Fatal("the app was not removed")
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the folder of the logs has %v, %v", left, err)
		}
	})
}

// expectNowhere expects that no file of a folder has a text, and that there is a file.
func expectNowhere(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		content, err := os.ReadFile(filepath.Join(dir, path))
		if strings.Contains(string(content), text) {
			t.Errorf("%s has the key", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}
}
