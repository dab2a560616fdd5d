package http_test

import (
	"fmt"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
)

// effectOfDoor is the effect of a door on a folder with the file a.txt.
type effectOfDoor int

const (
	writesFile effectOfDoor = iota
	addsEntry
	removesEntry
)

// door is a way to change a drive, in a folder. open returns the refusal, or "" if the drive was changed.
type door struct {
	name   string
	effect effectOfDoor
	// isClosed reports that the test does not change the drive with a token of the caller's: the door takes none, or the change would
	// leave nothing for later doors.
	isClosed bool
	open     func(sc *scene, as, folder string, submits ...string) string
}

// davDoor returns the door of a WebDAV method. A destination is the place of the change.
func davDoor(effect effectOfDoor, method, name, destination, body string) door {
	return door{name: method + " " + name + " " + destination, effect: effect, open: func(sc *scene, as, folder string, submits ...string) string {
		target, headers := "/drive/"+folder+name, submits
		if destination != "" {
			headers = append([]string{"Destination", sc.space("/drive/" + folder + destination)}, headers...)
		}
		if name == "" && destination != "" { // the source is beside the folder
			target = "/drive/source.txt"
			sc.drive("PUT", target, as, "source")
		}
		return refusalOfDAV(sc.drive(method, target, as, body, headers...))
	}}
}

func refusalOfDAV(got *httptest.ResponseRecorder) string {
	switch {
	case got.Code/100 == 2:
		return ""
	case got.Code == 423 && strings.Contains(got.Body.String(), "<D:lock-token-submitted>"):
		return "locked"
	}
	return fmt.Sprint(got.Code, got.Body)
}

// toolDoor returns the door of the tool write_file, which submits no tokens.
func toolDoor(effect effectOfDoor, name string) door {
	return door{name: "write_file " + name, effect: effect, open: func(sc *scene, as, folder string, _ ...string) string {
		text, failed := sc.tool(sc.bearerOf(as), "write_file", map[string]any{"workspace": sc.slug, "path": folder + name, "text": "tool"})
		switch {
		case !failed:
			return ""
		case text == "locked: another client has locked the path":
			return "locked"
		}
		return text
	}}
}

const setProperty = `<propertyupdate xmlns="DAV:"><set><prop><m xmlns="urn:x"/></prop></set></propertyupdate>`

func doors() []door {
	closed := func(d door) door {
		d.isClosed = true
		return d
	}
	return []door{
		davDoor(writesFile, "PUT", "/a.txt", "", "put"),
		davDoor(writesFile, "PROPPATCH", "/a.txt", "", setProperty),
		davDoor(writesFile, "COPY", "", "/a.txt", ""),
		davDoor(writesFile, "MOVE", "", "/a.txt", ""),
		closed(toolDoor(writesFile, "/a.txt")),
		davDoor(addsEntry, "PUT", "/put.txt", "", "put"),
		davDoor(addsEntry, "MKCOL", "/made", "", ""),
		davDoor(addsEntry, "COPY", "", "/copy.txt", ""),
		davDoor(addsEntry, "MOVE", "", "/moved.txt", ""),
		closed(toolDoor(addsEntry, "/tool.txt")),
		closed(toolDoor(addsEntry, "/folders/of/tool.txt")),
		closed(davDoor(removesEntry, "DELETE", "/a.txt", "", "")),
		closed(davDoor(removesEntry, "MOVE", "/a.txt", "-moved.txt", "")),
		closed(davDoor(removesEntry, "DELETE", "", "", "")),
		closed(davDoor(removesEntry, "MOVE", "/", "-moved", "")),
	}
}

// TestLocksHoldAtEveryDoor locks a file or its folder and changes them through every door: without the token, with the token of
// somebody else, and with the token of the caller's own lock.
func TestLocksHoldAtEveryDoor(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	shared := strings.Replace(takeLock, "exclusive", "shared", 1)
	for i, lock := range []struct {
		name, path, depth, body string
		holds                   map[effectOfDoor]bool
	}{
		{"file", "/a.txt", "0", takeLock, map[effectOfDoor]bool{writesFile: true, removesEntry: true}},
		{"shared", "/a.txt", "0", shared, map[effectOfDoor]bool{writesFile: true, removesEntry: true}},
		{"folder", "", "0", takeLock, map[effectOfDoor]bool{addsEntry: true, removesEntry: true}},
		{"deep", "", "infinity", takeLock, map[effectOfDoor]bool{writesFile: true, addsEntry: true, removesEntry: true}},
	} {
		t.Run(lock.name, func(t *testing.T) {
			sc.t = t
			folder := fmt.Sprint("locked", i)
			sc.must("MKCOL", "/drive/"+folder, "")
			sc.must("PUT", "/drive/"+folder+"/a.txt", "first")
			token := sc.drive("LOCK", "/drive/"+folder+lock.path, "owner", lock.body, "Depth", lock.depth).Header().Get("Lock-Token")
			submits := []string{"If", "<" + sc.space("/drive/"+folder+lock.path) + "> (" + token + ")"}
			for _, d := range doors() {
				if !lock.holds[d.effect] {
					if got := d.open(sc, "editor", folder); got != "" {
						t.Errorf("%s, which the lock does not concern: %s", d.name, got)
					}
					continue
				}
				for name, got := range map[string]string{
					"without the token":     d.open(sc, "editor", folder),
					"with another's token":  d.open(sc, "editor", folder, submits...),
					"of the lock's creator": d.open(sc, "owner", folder),
				} {
					if got != "locked" {
						t.Errorf("%s %s: %q", d.name, name, got)
					}
				}
			}
			for _, d := range doors() {
				if !lock.holds[d.effect] || d.isClosed {
					continue
				}
				if got := d.open(sc, "owner", folder, submits...); got != "" {
					t.Errorf("%s with the token: %s", d.name, got)
				}
			}
			if got := refusalOfDAV(sc.drive("DELETE", "/drive/"+folder, "owner", "", submits...)); got != "" {
				t.Errorf("DELETE of the folder with the token: %s", got)
			}
		})
	}
}

// TestUploadIntoLockedFolder offers uploads while somebody else has locked the folders for them.
func TestUploadIntoLockedFolder(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
	lock := func(folder, depth string) (unlock func()) {
		token := sc.drive("LOCK", "/drive/"+folder, "owner", takeLock, "Depth", depth).Header().Get("Lock-Token")
		return func() { expect(t, sc.drive("UNLOCK", "/drive/"+folder, "owner", "", "Lock-Token", token), 204, "") }
	}
	refused := func(missing string) {
		t.Helper()
		expect(t, sc.drive("POST", sessionsIn+"/uploads", "editor", `{"name":"a.txt","size":1}`), 409, "locked the path")
		expect(t, sc.drive("GET", "/drive/"+missing, "editor", ""), 404, "")
	}
	unlock := lock("", "0")
	refused("uploads")
	unlock()
	sc.must("MKCOL", "/drive/uploads", "")
	for _, depth := range []string{"0", "infinity"} {
		unlock := lock("uploads", depth)
		refused("uploads/" + sc.stage.clock.Now().UTC().Format("2006-01-02"))
		unlock()
	}
	offered := sc.offered(t, `{"name":"a.txt","size":1}`)
	put := func() *httptest.ResponseRecorder {
		return request(t, b.stage.node.Server, "PUT", offered.target, "", "a")
	}
	unlock = lock(path.Dir(offered.path), "0")
	expect(t, put(), 423, "lock-token-submitted")
	sc.offered(t, `{"name":"a.txt","size":1}`) // its folders exist
	unlock()
	expect(t, put(), 201, "")
}
