package node

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// TestDomainsWithoutCertificates checks a node that requests no certificates: a domain says so and can be removed, also after a restart.
func TestDomainsWithoutCertificates(t *testing.T) {
	h := newHome(t)
	h.done()
	const host = "shop.example.com"
	ask := func(c bindingv1.Command) *bindingv1.Binding {
		t.Helper()
		reply, err := h.Router.Ask(t.Context(), entity.Command{Kind: entity.KindBinding, Identity: host, Principal: entity.Platform(), Message: c})
		h.check(err)
		return reply.(*bindingv1.Binding)
	}
	ask(&bindingv1.ClaimBinding{WorkspaceId: ws, AppId: "app_1", DomainId: "dom_1"})
	h.until(func() bool { return ask(&bindingv1.DescribeBinding{}).GetLastCheckedAt() != 0 })
	s := ask(&bindingv1.DescribeBinding{})
	if s.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_PENDING || !strings.Contains(s.GetLastError(), "requests no certificates") || s.GetNextCheckAt() == 0 {
		t.Errorf("the binding is %v", s)
	}
	h.certificates.Addresses.Hosts = []string{"atelier.example.com"}
	for name, want := range map[string]string{"atelier.example.com": "requests no certificates", "else.example.com": "nor a host of the node"} {
		if err := h.certificates.Renew(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("renewing the certificate of %s: %v", name, err)
		}
	}
	h.stop()
	h.start()
	if again := ask(&bindingv1.DescribeBinding{}); again.GetDomainId() != "dom_1" {
		t.Errorf("the binding after a restart is %v", again)
	}
	ask(&bindingv1.ReleaseBinding{DomainId: "dom_1"})
	h.until(func() bool { return ask(&bindingv1.DescribeBinding{}).GetDomainId() == "" })
	if free := ask(&bindingv1.DescribeBinding{}); free.GetStatus() != 0 || free.GetLastCleanUp() != 1 {
		t.Errorf("the released binding is %v", free)
	}
}

// hostLog has the values of the attribute host of all records.
type hostLog struct {
	mu    sync.Mutex
	hosts map[string]bool
}

func (l *hostLog) replace(_ []string, a slog.Attr) slog.Attr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Key == "host" {
		l.hosts[a.Value.String()] = true
	}
	return a
}

func (l *hostLog) has(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hosts[host]
}

// TestStandardAddressFollowsRename renames the workspace of an app that runs: a certificate of its new address is requested, from an
// authority that cannot be reached.
func TestStandardAddressFollowsRename(t *testing.T) {
	h := &home{T: t, dir: t.TempDir()}
	log := &hostLog{hosts: map[string]bool{}}
	h.options = Options{Dir: h.dir, HoldApps: true, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: log.replace})),
		Domains: DomainOptions{Enabled: true, Directory: "https://127.0.0.1:1/", EdgeHost: "apps.example.com"}}.complete()
	h.options.Registry = nil
	h.Node = nodetest.Start(t, Start, h.options)
	h.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	h.ask(entity.KindWorkspace, &workspacev1.RegisterApp{Registration: &appv1.Registration{
		AppId: testAppID, AnchorId: testAnchorID, Path: testAppPath, Slug: "site", CreatedByUserId: "usr_1", Runtime: &appv1.Runtime{Command: "true"}}})
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.certificates.MaintainStandardAddress(ctx, app.Identity(ws, testAppID)) })
	defer running.Wait()
	defer end()
	h.until(func() bool { return log.has("site--acme.apps.example.com") })
	h.ask(entity.KindWorkspace, &workspacev1.RenameWorkspace{Slug: "apex"})
	h.until(func() bool { return log.has("site--apex.apps.example.com") })
}
