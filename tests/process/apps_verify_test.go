package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitRest waits until no configuration of the app is being reconciled. An app that may run then answers with its configuration,
// after a restart if its first configuration was refused.
func (p *tenant) awaitRest(c *client) {
	p.t.Helper()
	if p.app == nil || p.app.disabled {
		return
	}
	var last appView
	eventually(p.t, "the app "+p.app.slug+" runs", func() bool {
		last = readApp(p.t, c, p.ownPath(p.app, ""))
		if last.RuntimeStatus == "reconcile_failed" {
			status, answer, err := c.do(p.t.Context(), http.MethodPost, p.ownPath(p.app, "/restart"), nil)
			if err != nil || status != http.StatusOK && status != http.StatusBadGateway {
				p.t.Fatalf("POST %s: %d %s %v", p.ownPath(p.app, "/restart"), status, answer, err)
			}
			return false
		}
		return last.RuntimeStatus == "reconciled"
	})
	p.compare(last)
	token := "missing"
	_, _ = fmt.Sscanf(last.Command, "printf %s", &token)
	eventually(p.t, "the app "+p.app.slug+" answers with "+token, func() bool {
		return slices.Contains(p.world.askAll(p.t.Context(), last.Port, "/token"), token)
	})
}

func readApp(t *testing.T, c *client, path string) appView {
	t.Helper()
	var shown struct{ App appView }
	status, answer, err := c.do(t.Context(), http.MethodGet, path, nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &shown) != nil {
		t.Fatalf("GET %s: %d %s %v", path, status, answer, err)
	}
	return shown.App
}

// verifyOccupied verifies that the slug, the folder, the port and the domain of an app are refused to other apps.
func (w *appWorld) verifyOccupied(c *client) {
	w.t.Helper()
	for _, p := range w.tenants {
		if p.app == nil {
			continue
		}
		port := readApp(w.t, c, p.ownPath(p.app, "")).Port
		for _, occupied := range []struct {
			slug, folder string
			port         uint32
			refusal      string
		}{
			{p.app.slug, "spare", 23000, "slug_taken"}, {"spare", p.app.folder, 23000, "path_in_use"}, {"spare", "spare", port, "port_in_use"},
		} {
			w.expectRegistration(c, p.space, occupied.slug, occupied.folder, occupied.port, occupied.refusal)
		}
	}
	// The spare app of a workspace cannot have the domain of another app.
	for _, space := range appSpaces {
		w.expectRegistration(c, space, "spare", "spare", 23000, "")
		for _, p := range w.tenants {
			if p.app != nil && p.app.domain != "" {
				w.expectRefusal(c, http.MethodPut, spacePath(space, "/apps/spare/domain"), map[string]any{"hostname": p.app.domain}, "hostname_in_use")
			}
		}
		c.expect(w.t, http.StatusOK, http.MethodDelete, spacePath(space, "/apps/spare"), "")
	}
}

// verifyFree verifies that a new app can have each contested slug, folder and port that no app has, so that no reservation is left of apps
// that were removed or changed. A port is free only when no process listens on it any more, and an update that was interrupted keeps one
// for a minute.
func (w *appWorld) verifyFree(c *client) {
	w.t.Helper()
	for _, space := range appSpaces {
		slugs, folders, ports := map[string]bool{}, map[string]bool{}, map[uint32]bool{}
		for _, app := range listApps(w.t, c, space) {
			slugs[app.Slug], folders[app.AnchorPath], ports[app.Port] = true, true, true
			if app.DisabledAt != 0 && app.RuntimeStatus == "reconciling" { // it has a port for the time after its end
				for _, p := range w.tenants {
					if p.app != nil && p.space == space && p.app.slug == app.Slug {
						for _, r := range p.app.runtimes {
							ports[r.Port] = true
						}
					}
				}
			}
		}
		for i := range contested {
			slug, folder, port := contestedSlug(i), contestedFolder(i), firstContestedPort+uint32(i)
			if slugs[slug] {
				slug = "spare"
			}
			if folders[folder] {
				folder = "spare"
			}
			if ports[port] {
				port = 23000
			}
			path, body := spacePath(space, "/apps"), w.registration(slug, folder, port)
			eventually(w.t, fmt.Sprint("the port ", port, " is free"), func() bool {
				status, answer, err := c.do(w.t.Context(), http.MethodPost, path, marshal(body), "Content-Type", "application/json")
				if err != nil || status != http.StatusCreated && !bytes.Contains(answer, []byte(`"port_in_use"`)) {
					w.t.Fatalf("POST %s with %v: %d %s %v", path, body, status, answer, err)
				}
				return status == http.StatusCreated
			})
			c.expect(w.t, http.StatusOK, http.MethodDelete, spacePath(space, "/apps/"+slug), "")
		}
	}
}

// verifyRemoval removes all apps and verifies that nothing of them is left.
func (w *appWorld) verifyRemoval(c *client) {
	w.t.Helper()
	for _, p := range w.tenants {
		if p.app != nil {
			p.noteKey(w.t.Context())
			p.retired = append(p.retired, p.app.keys...)
			c.expect(w.t, http.StatusOK, http.MethodDelete, p.ownPath(p.app, ""), "")
		}
		for _, key := range p.retired {
			holder := newClient(c.address, key)
			holder.expect(w.t, http.StatusUnauthorized, http.MethodGet, "/v1/whoami", "")
			holder.close()
		}
	}
	if left := w.processes(); len(left) > 0 {
		w.t.Errorf("the processes %v of apps that are removed still run", left)
	}
	for _, space := range appSpaces {
		for i := range contested {
			w.expectRegistration(c, space, contestedSlug(i), contestedFolder(i), firstContestedPort+uint32(i), "")
		}
	}
	for i := range contested {
		path := spacePath(appSpaces[i%len(appSpaces)], "/apps/"+contestedSlug(i)+"/domain")
		eventually(w.t, contestedHostname(i)+" is free", func() bool {
			status, answer, err := c.do(w.t.Context(), http.MethodPut, path, marshal(map[string]any{"hostname": contestedHostname(i)}), "Content-Type", "application/json")
			if err != nil || status != http.StatusOK && !bytes.Contains(answer, []byte(`"domain_cleanup_pending"`)) {
				w.t.Fatalf("PUT %s: %d %s %v", path, status, answer, err)
			}
			return status == http.StatusOK
		})
	}
	for _, space := range appSpaces {
		for i := range contested {
			c.expect(w.t, http.StatusOK, http.MethodDelete, spacePath(space, "/apps/"+contestedSlug(i)), "")
		}
	}
}

// expectRegistration registers an app, which must be refused with an error, or be registered if it is empty.
func (w *appWorld) expectRegistration(c *client, space, slug, folder string, port uint32, refusal string) {
	w.t.Helper()
	w.expectRefusal(c, http.MethodPost, spacePath(space, "/apps"), w.registration(slug, folder, port), refusal)
}

// registration returns the registration of an app that serves its folder.
func (w *appWorld) registration(slug, folder string, port uint32) map[string]any {
	return map[string]any{
		"slug": slug, "path": folder, "port": port, "apiScopes": []string{}, "command": "export " + w.mark + "; exec /.atelier/atelier site",
	}
}

func (w *appWorld) expectRefusal(c *client, method, path string, body map[string]any, refusal string) {
	w.t.Helper()
	status, answer, err := c.do(w.t.Context(), method, path, marshal(body), "Content-Type", "application/json")
	var got struct{ Error string }
	if err != nil || json.Unmarshal(answer, &got) != nil || got.Error != refusal {
		w.t.Errorf("%s %s with %v: %d %s %v, want the error %q", method, path, body, status, answer, err, refusal)
	}
}

// processes returns the ids of the processes of the test's apps.
func (w *appWorld) processes() []string {
	var all []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range files {
		if environment, err := os.ReadFile(file); err == nil && bytes.Contains(environment, []byte(w.mark+"\x00")) {
			all = append(all, filepath.Base(filepath.Dir(file)))
		}
	}
	return all
}

// killApp kills a random process of the apps, and returns how many it has killed.
func (w *appWorld) killApp(r *rand.Rand) int {
	all := w.processes()
	if len(all) == 0 {
		return 0
	}
	pid, err := strconv.Atoi(all[r.IntN(len(all))])
	if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		return 0 // it has ended
	}
	return 1
}

// askAll requests a path at a port in the network of each process of the test's apps, and returns the answers.
func (w *appWorld) askAll(ctx context.Context, port uint32, path string) []string {
	var answers []string
	for _, pid := range w.processes() {
		c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialInNetwork(ctx, pid, fmt.Sprint("127.0.0.1:", port))
			},
		}}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app"+path, nil)
		if err != nil {
			panic(err)
		}
		response, err := c.Do(request)
		if err != nil {
			continue // the process has ended, or is one of another app that has another port
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil && response.StatusCode == http.StatusOK {
			answers = append(answers, string(text))
		}
	}
	return answers
}

// dialInNetwork connects to an address in the network namespace of a process.
func dialInNetwork(ctx context.Context, pid, address string) (conn net.Conn, err error) {
	err = inNetwork(filepath.Join("/proc", pid, "ns/net"), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address) // one IPv4 address needs no other goroutine
		return err
	})
	return conn, err
}

// inNetwork calls f on a thread that is in a network namespace, and then returns to the network namespace of the test. The thread may
// be the main one, which would never end.
func inNetwork(namespace string, f func() error) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // the thread must not run other goroutines
		}
	}()
	return f()
}

// networkCookie returns the number of a network namespace, which the kernel gives to no other one; its inode is used again.
func networkCookie(namespace string) (cookie uint64, err error) {
	err = inNetwork(namespace, func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		cookie, err = unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	return cookie, err
}

// networkNamespaces returns the cookies, by name, of the network namespaces of the node's processes, without the network namespace of
// the test.
func (w *appWorld) networkNamespaces() map[string]uint64 {
	own, _ := os.Readlink("/proc/self/ns/net")
	all := map[string]uint64{}
	for _, pid := range slices.Concat(w.processes(), processesOf(w.site.node)) {
		file := filepath.Join("/proc", pid, "ns/net")
		name, err := os.Readlink(file)
		if err != nil || name == own {
			continue // the process has ended
		}
		if cookie, err := networkCookie(file); err == nil {
			all[name] = cookie
		}
	}
	return all
}

// processesOf returns the ids of the descendants of a node.
func processesOf(n *node) []string {
	children := map[string][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		children[fields[1]] = append(children[fields[1]], filepath.Base(filepath.Dir(file)))
	}
	all := children[fmt.Sprint(n.command.Process.Pid)]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// expectNoNamespaces waits until no process has one of the namespaces, or a file of it.
func (w *appWorld) expectNoNamespaces(gone map[string]uint64) {
	w.t.Helper()
	w.namespaces += len(gone)
	var left string
	defer func() {
		if left != "" {
			holder, _ := os.ReadFile(strings.Join(strings.SplitN(left, "/", 4)[:3], "/") + "/cmdline") // empty if it has ended
			w.t.Logf("%s is a namespace of the node, held by %q", left, holder)
		}
	}()
	eventually(w.t, "no network namespace of the node is left", func() bool {
		members, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is valid
		files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		left = ""
		for _, file := range append(members, files...) {
			name, err := os.Readlink(file)
			if err != nil || gone[name] == 0 {
				continue
			}
			if cookie, err := networkCookie(file); err == nil && cookie == gone[name] {
				left = file
			}
		}
		return left == ""
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		w.t.Fatal(err)
	}
	for name := range gone {
		if bytes.Contains(mounts, []byte(name)) {
			w.t.Errorf("the network namespace %s is mounted", name)
		}
	}
}
