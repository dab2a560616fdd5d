package domain

import (
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var errNotFound = entity.Errorf(entity.NotFound, "there is none")

// world is an asker with the workspace ws_1, which has the slug acme and the app app_1 with the slug site.
type world struct{ failure error }

func (w world) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	if w.failure != nil {
		return nil, w.failure
	}
	switch m := c.Message.(type) {
	case *slugv1.ResolveSlug:
		if c.Identity != "acme" {
			return &slugv1.Slug{}, nil
		}
		return &slugv1.Slug{WorkspaceId: "ws_1"}, nil
	case *workspacev1.FindApp:
		if c.Identity != "ws_1" || m.GetSlug() != "site" && m.GetAppId() != "app_1" {
			return nil, errNotFound
		}
		return &workspacev1.Anchor{App: &workspacev1.App{Slug: "site"}}, nil
	case *workspacev1.DescribeWorkspace:
		return &workspacev1.Description{Workspace: &workspacev1.Workspace{Slug: "acme"}}, nil
	}
	return nil, errNotFound
}

// certificates is both the files, with the certificate of files.example.com, and the issuer. renewed has the host of each renewal.
type certificates struct{ renewed []string }

func (c *certificates) Covers(host string) bool            { return host == "files.example.com" }
func (c *certificates) Maintain(context.Context, []string) {}
func (c *certificates) Renew(_ context.Context, host string) error {
	c.renewed = append(c.renewed, host)
	return nil
}

func addresses(w world) Addresses {
	return Addresses{Asker: w, EdgeHost: "apps.example.com", Hosts: []string{"atelier.example.com", "files.example.com"}}
}

func TestRenewOfOwnHosts(t *testing.T) {
	for host, want := range map[string]error{
		"atelier.example.com":            nil,
		"site--acme.apps.example.com":    nil,
		"files.example.com":              errFileCertificate,
		"else.example.com":               errForeignHost,
		"else--acme.apps.example.com":    errForeignHost,
		"site--else.apps.example.com":    errForeignHost,
		"site--a_c_me.apps.example.com":  errForeignHost,
		"a.site--acme.apps.example.com":  errForeignHost,
		"site--acme.other.example.com":   errForeignHost,
		"site--acme.apps.example.com.eu": errForeignHost,
	} {
		of := &certificates{}
		c := Certificates{Addresses: addresses(world{}), Files: of, Issuer: of}
		if err := c.Renew(t.Context(), host); !errors.Is(err, want) || (want == nil) != slices.Equal(of.renewed, []string{host}) {
			t.Errorf("%s: %v, renewed %v", host, err, of.renewed)
		}
	}
}

// TestOwnHostIsUnknown verifies that a failure is not taken for an answer.
func TestOwnHostIsUnknown(t *testing.T) {
	failure := errors.New("the entity does not answer")
	if own, err := addresses(world{failure}).IsOwn(t.Context(), "site--acme.apps.example.com"); own || !errors.Is(err, failure) {
		t.Errorf("%v, %v", own, err)
	}
}

func TestStandardAddress(t *testing.T) {
	host, err := addresses(world{}).StandardAddress(t.Context(), "ws_1", "app_1")
	if host != "site--acme.apps.example.com" || err != nil {
		t.Errorf("%q, %v", host, err)
	}
	if _, err := addresses(world{}).StandardAddress(t.Context(), "ws_1", "app_2"); !errors.Is(err, errNotFound) {
		t.Errorf("of another app: %v", err)
	}
}
