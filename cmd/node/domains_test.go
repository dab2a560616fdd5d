package node

import (
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
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
