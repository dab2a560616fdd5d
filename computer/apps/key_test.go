package apps

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity/app"
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
			_, secret, _ := strings.Cut(strings.TrimPrefix(p.key(), app.KeyStart), "_")
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

// A configuration with other scopes replaces the key while the accepted one runs. If it fails, the process of the accepted configuration is
// replaced by one with a valid key.
func TestKeyAfterAFailedChangeOfScopes(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.programs["serve"] = program{}
		w.programs["broken"] = program{port: -1, life: time.Second, exit: computer.Exit{Status: 1}}
		w.register(&appv1.Runtime{Command: "serve", ApiScopes: []string{"sessions", "files:read"}})
		w.do(&appv1.UpdateApp{Command: proto.String("broken"), ApiScopes: &appv1.Scopes{Scopes: []string{"sessions"}}})
		w.expectStatus(w.reconciled(), failedStatus)
		time.Sleep(time.Minute)
		synctest.Wait()
		c, name := w.dial()
		c.Close()
		alive := w.alive()
		if name != "serve" || len(alive) != 1 {
			t.Fatalf("%q answers, and %d processes run", name, len(alive))
		}
		_, secret, _ := strings.Cut(strings.TrimPrefix(alive[0].key(), app.KeyStart), "_")
		hash := sha256.Sum256([]byte(secret))
		key := w.state().GetKey()
		if !bytes.Equal(key.GetSecretSha256(), hash[:]) || strings.Join(key.GetScopes(), " ") != "sessions files:read" {
			t.Errorf("the process does not have the key of the app, whose scopes are %v", key.GetScopes())
		}
		if crashes := w.state().GetCrashes(); len(crashes) > 0 {
			t.Errorf("the replacement is recorded as a crash: %v", crashes)
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
