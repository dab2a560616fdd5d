package process

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
)

var (
	appKills   = flag.Int("app-kills", 3, "number of times that TestKillApps kills the node")
	appTenants = flag.Int("apps", 8, "number of clients of TestKillApps, each of which has an app at a time")
)

// appSpaces are the workspaces of TestKillApps. Their apps compete for host names, and the apps of one workspace compete for slugs,
// folders and ports.
var appSpaces = []string{"factory", "annex"}

const (
	// contested is the number of slugs, folders, ports and host names that the clients compete for.
	contested = 3
	// firstOwnPort is the port of the first client that it does not share; firstContestedPort is the first that all share.
	firstOwnPort, firstContestedPort = 21000, 22000
)

func contestedSlug(i int) string     { return fmt.Sprint("shared-", i) }
func contestedFolder(i int) string   { return fmt.Sprint("folder-", i) }
func contestedHostname(i int) string { return fmt.Sprintf("app%d.example.com", i) }

// TestKillApps kills the node, and between that the processes of apps, while clients register, change and remove apps and attach custom
// domains, and repeat every request until it is answered. After each kill nothing that the node has started is left on the machine. At the
// end each acknowledged change is visible, each name and port has one app, apps that may run answer, the keys of apps that were disabled
// or removed are refused, and the slugs, folders, ports and host names of removed apps are free.
func TestKillApps(t *testing.T) {
	requireRoot(t)
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 13))
	// No custom domain is ever verified: the resolver is a port without a listener.
	s := newSite(t, filepath.Join(t.TempDir(), "data"), "--resolvers=127.0.0.1:1")
	w := newAppWorld(t, s)
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	for _, p := range w.tenants {
		working.Go(func() { p.work(work) })
	}
	killed := 0
	for range *appKills {
		s.waitForOperations(t, 5+r.IntN(5**appTenants))
		for range r.IntN(3) {
			killed += w.killApp(r)
		}
		delay := time.NewTimer(time.Duration(r.IntN(int(500 * time.Millisecond))))
		<-delay.C
		namespaces := w.networkNamespaces()
		s.node.kill()
		expectNothingLeft(t, s.dir)
		w.expectNoNamespaces(namespaces)
		s.restart(t)
	}
	stop()
	working.Wait()
	s.restart(t)
	w.verify()
	t.Logf("%d changes were acknowledged, %d processes of apps killed; answers: %v", w.changes(), killed, w.answers())
	namespaces := w.networkNamespaces()
	if code := s.node.terminate(t); code != 0 {
		t.Errorf("the node ended with %d:\n%s", code, s.node.logs)
	}
	expectNoFault(t, s.dir)
	expectNothingLeft(t, s.dir)
	w.expectNoNamespaces(namespaces)
	if w.namespaces == 0 {
		t.Error("no process of the node had a network namespace of its own")
	}
}

// An appWorld is a site with the workspaces and the clients of TestKillApps.
type appWorld struct {
	t    *testing.T
	site *site
	// mark is a variable in the environment of all apps of this test. The test finds their processes by it.
	mark    string
	tenants []*tenant
	// namespaces is the number of network namespaces of the node that were verified to have ended.
	namespaces int
}

func newAppWorld(t *testing.T, s *site) *appWorld {
	t.Helper()
	w := &appWorld{t: t, site: s, mark: fmt.Sprintf("TEST_APP=%d-%d", *seed, time.Now().UnixNano())}
	c := newClient(s.node.address, s.key)
	defer c.close()
	typed, err := api.New(c.address, c.key, api.WithHTTPClient(c.http))
	if err != nil {
		t.Fatal(err)
	}
	for _, slug := range appSpaces[1:] { // the site has the first one
		if _, err := typed.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: slug, Name: slug}); err != nil {
			t.Fatal("creating a workspace: ", err)
		}
	}
	eventually(t, "the workspaces are ready", func() bool {
		self, err := typed.Whoami(t.Context())
		ready := 0
		for _, workspace := range self.Workspaces {
			if workspace.Status == "active" {
				ready++
			}
		}
		return err == nil && ready == len(appSpaces)
	})
	for _, space := range appSpaces {
		for i := range contested {
			c.expect(t, http.StatusCreated, "MKCOL", spacePath(space, "/drive/"+contestedFolder(i)), "")
		}
		c.expect(t, http.StatusCreated, "MKCOL", spacePath(space, "/drive/spare"), "")
	}
	for i := range *appTenants {
		p := newTenant(w, i)
		w.tenants = append(w.tenants, p)
		c.expect(t, http.StatusCreated, "MKCOL", spacePath(p.space, "/drive/"+p.ownName()), "")
	}
	return w
}

func spacePath(space, rest string) string { return "/v1/ws/" + space + rest }

// verify compares the state of the node with the acknowledged state, and then removes everything.
func (w *appWorld) verify() {
	w.t.Helper()
	c := newClient(w.site.node.address, w.site.key)
	defer c.close()
	for _, p := range w.tenants {
		p.complete(c)
	}
	for _, p := range w.tenants {
		p.awaitRest(c)
	}
	w.verifyLists(c)
	w.verifyOccupied(c)
	w.verifyFree(c)
	w.verifyRemoval(c)
}

// verifyLists compares the lists of apps and domains with the lists of the clients.
func (w *appWorld) verifyLists(c *client) {
	w.t.Helper()
	bound := map[string]string{}
	for _, space := range appSpaces {
		want := map[string]*model{}
		for _, p := range w.tenants {
			if p.app != nil && p.space == space {
				want[p.app.slug] = p.app
			}
		}
		folders, ports, found := map[string]string{}, map[uint32]string{}, map[string]bool{}
		for _, app := range listApps(w.t, c, space) {
			m := want[app.Slug]
			if m == nil || m.name != app.Name || found[app.Slug] {
				w.t.Errorf("%s has the app %s (%s), which no client has registered last", space, app.Slug, app.Name)
				continue
			}
			found[app.Slug] = true
			if other := folders[app.AnchorPath]; other != "" {
				w.t.Errorf("%s and %s have the folder %s", other, app.Slug, app.AnchorPath)
			}
			if other := ports[app.Port]; other != "" {
				w.t.Errorf("%s and %s have the port %d", other, app.Slug, app.Port)
			}
			folders[app.AnchorPath], ports[app.Port] = app.Slug, app.Slug
		}
		if len(found) != len(want) {
			w.t.Errorf("%s has %d apps, want %d", space, len(found), len(want))
		}
		domains := map[string]string{}
		for _, row := range listDomains(w.t, c, space) {
			if row.Domain.Status == "removing" {
				continue
			}
			name := row.Domain.Hostname
			if other := bound[name]; other != "" {
				w.t.Errorf("%s is bound to %s and %s", name, other, row.App.Slug)
			}
			bound[name], domains[name] = row.App.Slug, row.App.Slug
		}
		for slug, m := range want {
			if m.domain != "" && domains[m.domain] != slug {
				w.t.Errorf("the list of domains of %s has %s for %q, want %s", space, m.domain, domains[m.domain], slug)
			}
			if m.domain != "" {
				delete(domains, m.domain)
			}
		}
		if len(domains) > 0 {
			w.t.Errorf("%s has the domains %v, which no client has attached", space, domains)
		}
	}
}

func listApps(t *testing.T, c *client, space string) []appView {
	t.Helper()
	var page struct {
		Items      []appView
		NextCursor *string
	}
	text := c.expect(t, http.StatusOK, http.MethodGet, spacePath(space, "/apps?limit=100"), "")
	if err := json.Unmarshal([]byte(text), &page); err != nil || page.NextCursor != nil {
		t.Fatalf("the list of apps is %s", text)
	}
	return page.Items
}

type domainRow struct {
	Domain struct{ Hostname, Status string }
	App    struct{ Slug string }
}

func listDomains(t *testing.T, c *client, space string) []domainRow {
	t.Helper()
	var page struct {
		Items      []domainRow
		NextCursor *string
	}
	text := c.expect(t, http.StatusOK, http.MethodGet, spacePath(space, "/app-domains?limit=100"), "")
	if err := json.Unmarshal([]byte(text), &page); err != nil || page.NextCursor != nil {
		t.Fatalf("the list of domains is %s", text)
	}
	return page.Items
}

// changes returns the number of acknowledged changes.
func (w *appWorld) changes() (total int) {
	for _, p := range w.tenants {
		total += p.changes
	}
	return total
}

// answers counts the answers to requests by their status and error.
func (w *appWorld) answers() map[string]int {
	all := map[string]int{}
	for _, p := range w.tenants {
		for answer, n := range p.answers {
			all[answer] += n
		}
	}
	return all
}
