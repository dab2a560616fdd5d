package process

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A fact is the content of the row that an operation leaves in the sequence.
type fact struct{ kind, actor, path, from string }

// An attempt is an operation that was sent. If it was not acknowledged, its outcome is unknown.
type attempt struct {
	fact
	acknowledged bool
	// copied is the source if the fact is the copy of a folder.
	copied string
}

// A writer changes files in a folder of its own, with known content, and in a folder that all writers share.
type writer struct {
	t      *testing.T
	site   *site
	key    issuedKey
	random *rand.Rand
	folder string
	client *client

	attempts []attempt
	// files and folders are known to exist. An operation with an unknown outcome removes its path from both lists.
	files, folders []string
	made           int
}

func newWriter(t *testing.T, s *site, number int, key issuedKey, random *rand.Rand) *writer {
	return &writer{t: t, site: s, key: key, random: random, folder: fmt.Sprint("own-", number), client: newClient(s.node.address, key.Key)}
}

// work runs operations until the context ends. It finishes the last one.
func (w *writer) work(until context.Context) {
	defer func() { w.client.close() }()
	w.site.runSteps(until, func(address string) {
		w.client.close()
		w.client = newClient(address, w.key.Key)
	}, w.step)
}

// step runs one random operation and reports whether the node has answered it, successfully or not.
func (w *writer) step() bool {
	switch n := w.random.IntN(100); {
	case n < 25:
		return w.create()
	case n < 35:
		return w.overwrite()
	case n < 43:
		return w.makeFolder()
	case n < 51:
		return w.fill()
	case n < 59:
		return w.move()
	case n < 64:
		return w.moveFolder()
	case n < 70:
		return w.copy()
	case n < 74:
		return w.copyFolder()
	case n < 80:
		return w.remove()
	case n < 83:
		return w.removeFolder()
	case n < 86:
		return w.read()
	default:
		return w.share()
	}
}

func (w *writer) name(kind string) string {
	w.made++
	return fmt.Sprintf("%s/%s%d", w.folder, kind, w.made)
}

// take removes and returns a random path of a list.
func (w *writer) take(of *[]string) (string, bool) {
	if len(*of) == 0 {
		return "", false
	}
	i := w.random.IntN(len(*of))
	taken := (*of)[i]
	(*of)[i] = (*of)[len(*of)-1]
	*of = (*of)[:len(*of)-1]
	return taken, true
}

// content returns random content that has its author's name and ends with a checksum; see author.
func (w *writer) content() []byte {
	w.made++
	text := fmt.Sprintf("%s\n%d\n%s\n", w.key.actor(), w.made, strings.Repeat("x", w.random.IntN(20_000)))
	return fmt.Appendf([]byte(text), "%x\n", sha256.Sum256([]byte(text)))
}

// author returns the author of content, or an error if the content is not complete.
func author(content []byte) (string, error) {
	text, found := strings.CutSuffix(string(content), "\n")
	cut := strings.LastIndexByte(text, '\n') + 1
	if !found || fmt.Sprintf("%x", sha256.Sum256([]byte(text[:cut]))) != text[cut:] {
		return "", fmt.Errorf("%d bytes with a wrong checksum", len(content))
	}
	name, _, _ := strings.Cut(text, "\n")
	return name, nil
}

// operate sends one request and records the attempt. It fails the test if a request in the writer's own folder is refused.
func (w *writer) operate(a attempt, method, path string, body []byte, headers ...string) (done, answered bool) {
	a.actor = w.key.actor()
	status, answer, err := w.client.do(context.Background(), method, drivePath(path), body, headers...)
	unknown := err != nil || status >= http.StatusInternalServerError
	switch {
	case status < http.StatusBadRequest && err == nil:
		a.acknowledged = true
		w.site.acknowledge()
	case unknown:
	case strings.HasPrefix(path, "shared/"):
		return false, true // another writer has changed the path
	default:
		w.t.Errorf("%s %s: %d %s", method, path, status, answer)
		return false, true
	}
	if a.kind != "" {
		w.attempts = append(w.attempts, a)
	}
	return a.acknowledged, err == nil
}

func to(path string) []string {
	return []string{"Destination", (&url.URL{Path: drivePath(path)}).String(), "Overwrite", "F"}
}

func (w *writer) create() bool {
	path := w.name("file")
	done, answered := w.operate(attempt{fact: fact{kind: "create", path: path}}, "PUT", path, w.content())
	if done {
		w.files = append(w.files, path)
	}
	return answered
}

func (w *writer) overwrite() bool {
	path, some := w.take(&w.files)
	if !some {
		return true
	}
	done, answered := w.operate(attempt{fact: fact{kind: "write", path: path}}, "PUT", path, w.content())
	if done {
		w.files = append(w.files, path)
	}
	return answered
}

func (w *writer) makeFolder() bool {
	path := w.name("folder")
	done, answered := w.operate(attempt{fact: fact{kind: "create", path: path}}, "MKCOL", path, nil)
	if done {
		w.folders = append(w.folders, path)
	}
	return answered
}

// fill creates a file in a folder. The file is not in files, so that later operations change the folder only as a whole.
func (w *writer) fill() bool {
	folder, some := w.take(&w.folders)
	if !some {
		return true
	}
	w.made++
	path := fmt.Sprint(folder, "/", w.made)
	done, answered := w.operate(attempt{fact: fact{kind: "create", path: path}}, "PUT", path, w.content())
	if done {
		w.folders = append(w.folders, folder)
	}
	return answered
}

func (w *writer) move() bool       { return w.moveOne(&w.files, w.name("moved")) }
func (w *writer) moveFolder() bool { return w.moveOne(&w.folders, w.name("shifted")) }

func (w *writer) moveOne(of *[]string, target string) bool {
	path, some := w.take(of)
	if !some {
		return true
	}
	done, answered := w.operate(attempt{fact: fact{kind: "rename", path: target, from: path}}, "MOVE", path, nil, to(target)...)
	if done {
		*of = append(*of, target)
	}
	return answered
}

func (w *writer) copy() bool {
	path, some := w.take(&w.files)
	if !some {
		return true
	}
	target := w.name("copy")
	w.files = append(w.files, path)
	done, answered := w.operate(attempt{fact: fact{kind: "create", path: target}}, "COPY", path, nil, to(target)...)
	if done {
		w.files = append(w.files, target)
	}
	return answered
}

func (w *writer) copyFolder() bool {
	path, some := w.take(&w.folders)
	if !some {
		return true
	}
	target := w.name("twin")
	w.folders = append(w.folders, path)
	done, answered := w.operate(attempt{fact: fact{kind: "create", path: target}, copied: path}, "COPY", path, nil, to(target)...)
	if done {
		w.folders = append(w.folders, target)
	}
	return answered
}

func (w *writer) remove() bool       { return w.removeOne(&w.files) }
func (w *writer) removeFolder() bool { return w.removeOne(&w.folders) }

func (w *writer) removeOne(of *[]string) bool {
	path, some := w.take(of)
	if !some {
		return true
	}
	_, answered := w.operate(attempt{fact: fact{kind: "delete", path: path}}, "DELETE", path, nil)
	return answered
}

func (w *writer) read() bool {
	path, some := w.take(&w.files)
	if !some {
		return true
	}
	w.files = append(w.files, path)
	_, answered := w.operate(attempt{}, "GET", path, nil)
	return answered
}

const sharedFiles = 5

// share runs an operation in the shared folder. A writer cannot know whether its PUT creates or overwrites a file there.
func (w *writer) share() bool {
	path := fmt.Sprint("shared/", w.random.IntN(sharedFiles))
	switch w.random.IntN(4) {
	case 0:
		_, answered := w.operate(attempt{fact: fact{kind: "delete", path: path}}, "DELETE", path, nil)
		return answered
	case 1:
		target := fmt.Sprint("shared/", w.random.IntN(sharedFiles))
		headers := append(to(target), "Overwrite", "T")
		if target == path {
			return true
		}
		_, answered := w.operate(attempt{fact: fact{kind: "rename", path: target, from: path}}, "MOVE", path, nil, headers...)
		return answered
	}
	_, answered := w.operate(attempt{fact: fact{kind: "put", path: path}}, "PUT", path, w.content())
	return answered
}
