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

// fact is what an operation should leave in the sequence.
type fact struct{ kind, actor, path, from string }

// attempt is an operation that was sent. One that was cut off may or may not have happened.
type attempt struct {
	fact
	acknowledged bool
	// copied is the folder of whose copy the fact tells.
	copied string
}

// writer works in a folder of its own, where it knows what is there, and in one that all share.
type writer struct {
	t      *testing.T
	site   *site
	key    issuedKey
	random *rand.Rand
	folder string
	client *client
	life   int

	attempts []attempt
	// files and folders are certain to be there. What an operation of unknown outcome touched leaves both for good.
	files, folders []string
	made           int
}

func newWriter(t *testing.T, s *site, number int, key issuedKey, random *rand.Rand) *writer {
	return &writer{t: t, site: s, key: key, random: random, folder: fmt.Sprint("own-", number), client: newClient(s.node.address, key.Key)}
}

// work goes on until the context ends; the operation that is under way then is carried to its end.
func (w *writer) work(until context.Context) {
	defer func() { w.client.close() }()
	for until.Err() == nil {
		if w.step() {
			continue
		}
		if !w.site.after(until, w.life) {
			return
		}
		w.client.close()
		var address string
		address, w.life = w.site.current()
		w.client = newClient(address, w.key.Key)
	}
}

// step does one operation and tells whether the node answered it, if only that it cannot do it now.
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

// take removes a random one of what is certain to be there, for the time in which it is not.
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

// content names its author and proves that it is whole.
func (w *writer) content() []byte {
	w.made++
	text := fmt.Sprintf("%s\n%d\n%s\n", w.key.actor(), w.made, strings.Repeat("x", w.random.IntN(20_000)))
	return fmt.Appendf([]byte(text), "%x\n", sha256.Sum256([]byte(text)))
}

// author checks that content is whole and tells whose it is.
func author(content []byte) (string, error) {
	text, found := strings.CutSuffix(string(content), "\n")
	cut := strings.LastIndexByte(text, '\n') + 1
	if !found || fmt.Sprintf("%x", sha256.Sum256([]byte(text[:cut]))) != text[cut:] {
		return "", fmt.Errorf("%d bytes that are no whole content", len(content))
	}
	who, _, _ := strings.Cut(text, "\n")
	return who, nil
}

// operate sends one request. In its own folder a writer knows that nothing may refuse it.
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
		return false, true // others were there first
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

// fill puts a file into a folder, which alone keeps count of it.
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

// share works where others do. Whether a PUT creates or overwrites is not for one writer to know.
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
