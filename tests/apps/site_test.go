package apps

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// longest limits waits that measure nothing, and is the time that an install command has. A test that waits longer has failed.
const longest = 5 * time.Minute

// workspace is the slug of the workspace.
const workspace = "acme"

// A site is a node that serves the platform and its apps, and a person who owns a workspace and visits its apps.
type site struct {
	*testing.T
	node *node.Node
	api  *client.Client
	// address is the address of the platform. key is the person's key.
	address, key string
	workspaceID  string
	// visitor has the cookies of a browser.
	visitor *http.Client
}

// newSite starts a site. Without an edge host, apps are below localhost.
func newSite(t *testing.T, edgeHost string) *site {
	t.Helper()
	if os.Getuid() != 0 {
		testmachine.Lacks(t, "isolated computers need root")
	}
	s := &site{T: t}
	front := nodetest.Listen(t)
	public := front.PublicURL()
	public.Host = "localhost:" + public.Port()
	s.address = public.String()
	o := node.Options{
		Dir: t.TempDir(), Wire: true, PendingLimit: longest, Computers: node.ComputerOptions{Driver: node.LocalDriver},
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	o.HTTP.PublicURL, o.Domains.EdgeHost = public, edgeHost
	o.Apps.Ready, o.Apps.Grace = time.Minute, time.Second
	s.node = nodetest.Start(t, node.Start, o)
	front.Serve(s.node.Server)
	jar, err := cookiejar.New(nil)
	s.check(err)
	s.visitor = &http.Client{Jar: jar, Timeout: longest, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", front.Listener.Addr().String())
		},
	}}
	t.Cleanup(s.visitor.CloseIdleConnections)
	s.key = s.person("ada")
	s.api, err = client.New(s.address, s.key, client.WithHTTPClient(s.visitor))
	s.check(err)
	made, err := s.api.CreateWorkspace(t.Context(), client.NewWorkspace{Slug: workspace, Name: "Acme"})
	s.check(err)
	s.workspaceID = made.WorkspaceID
	nodetest.RequireIsolation(t, s.node.Computers, s.workspaceID)
	return s
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// person creates a person, and returns the person's key.
func (s *site) person(name string) string {
	s.Helper()
	return nodetest.NewPerson(s, s.node.Server.Admin(), name+"@example.org", name).Key
}

// seenByComputers reports whether a file of the machine is in a folder that computers see.
func seenByComputers(path string) bool {
	resolved, err := filepath.EvalSymlinks(path)
	return err == nil && slices.ContainsFunc([]string{"/usr/", "/opt/", "/bin/"}, func(folder string) bool { return strings.HasPrefix(resolved, folder) })
}

// requireProgram skips the test unless processes of computers find a program.
func (s *site) requireProgram(name string) {
	s.Helper()
	if at, err := exec.LookPath(name); err != nil || !seenByComputers(at) {
		testmachine.Lacks(s.T, "computers find no "+name+" on this machine")
	}
}

// write writes the files of a folder to the drive, over WebDAV.
func (s *site) write(from, to string) {
	s.Helper()
	s.check(s.api.MakeFolder(s.Context(), workspace, to))
	entries, err := os.ReadDir(from)
	s.check(err)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		s.check(err)
		s.put(to+"/"+e.Name(), string(content))
	}
}

// put writes a file of the drive, over WebDAV.
func (s *site) put(path, content string) {
	s.Helper()
	_, err := s.api.WriteFile(s.Context(), workspace, path, strings.NewReader(content))
	s.check(err)
}

// onDisk returns the path of a file of the drive on the machine.
func (s *site) onDisk(path string) string {
	return filepath.Join(s.node.Drives.Dir(), s.workspaceID, "files", filepath.FromSlash(path))
}

// register registers an app with the name of its folder as its slug, and waits until it runs. It returns the address of the app.
func (s *site) register(in client.NewApp) string {
	s.Helper()
	in.Slug, in.APIScopes = in.Path, append([]string{}, in.APIScopes...)
	made, err := s.api.RegisterApp(s.Context(), workspace, in)
	if failed := (*client.Error)(nil); errors.As(err, &failed) {
		s.Fatalf("%v: %s", err, failed.Reason)
	}
	s.check(err)
	// The operation answers after a minute at most, and an install command may take longer.
	ctx, cancel := context.WithTimeout(s.Context(), longest)
	defer cancel()
	reply, err := s.node.Router.Ask(ctx, entity.Command{
		Kind: entity.KindApp, Identity: app.Identity(s.workspaceID, made.ID), Principal: entity.Platform(), Message: &appv1.AwaitApp{Generation: 1},
	})
	s.check(err)
	if a := reply.(*appv1.Description).GetApp(); a.GetRuntimeStatus() != appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED {
		s.Fatalf("the app is %v: %s", a.GetRuntimeStatus(), a.GetReconciliationError())
	}
	return strings.TrimSuffix(made.CanonicalURL, "/")
}

// launch launches an app as a browser does that is signed in, which gives the visitor a cookie.
func (s *site) launch(slug string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.address+"/v1/ws/"+workspace+"/apps/"+slug+"/launch", nil)
	s.check(err)
	r.Header.Set("Authorization", "Bearer "+s.key)
	answer, err := s.visitor.Do(r)
	s.check(err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusForbidden { // the latter is an answer of Vite
		s.Fatalf("launching %s: %s", slug, answer.Status)
	}
}

// send sends a request as a script of the app's page does, and returns the response and its body.
func (s *site) send(method, address string, body []byte) (*http.Response, string) {
	s.Helper()
	answer := s.open(method, address, body)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	s.check(err)
	return answer, string(content)
}

func (s *site) open(method, address string, body []byte) *http.Response {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, address, bytes.NewReader(body))
	s.check(err)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := s.visitor.Do(r)
	s.check(err)
	return answer
}

// get requests a path that the app must serve.
func (s *site) get(address string) (*http.Response, string) {
	s.Helper()
	answer, body := s.send(http.MethodGet, address, nil)
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("%s: %s %s", address, answer.Status, body)
	}
	return answer, body
}
