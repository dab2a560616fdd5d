package edge

import (
	"context"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/visit"
	"github.com/atelier-run/atelier/keys"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// maxPath is the maximum length of the path that a launch redirects to, in bytes.
const maxPath = 8 << 10

var (
	errHost = entity.Errorf(entity.InvalidRequest, "host must be the standard address of the app or its active custom domain")
	errPath = entity.Errorf(entity.InvalidRequest, "path must begin with one slash, and have no scheme, backslash, fragment or control character")
	errKind = entity.Errorf(entity.Forbidden, "an app cannot be launched with a credential of an app, an agent or a computer, or with a read-only key")
)

// A Launcher launches apps. It is the part of the edge that the operation launch of the API uses.
type Launcher struct {
	Asker entity.Asker
	// NewID, PublicURL and EdgeHost have the meaning of the fields of Options.
	NewID     func(prefix string) string
	PublicURL *url.URL
	EdgeHost  string
}

// Launcher returns a launcher of the apps that the edge serves.
func (e *Edge) Launcher() *Launcher {
	return &Launcher{Asker: e.o.Asker, NewID: e.o.NewID, PublicURL: e.o.PublicURL, EdgeHost: e.o.EdgeHost}
}

// Launch authorizes a principal, grants a visit, and returns the address of the app with the grant. The grant can be redeemed once, within a
// minute. host is the standard address of the app or its active custom domain, with or without a port; empty: the standard address. path is
// the path on the host, with its query; empty: "/". A grant in path is replaced. Errors: invalid_request; not_found; the errors of the
// workspace for principals that may not read its apps; forbidden for a principal that may not visit apps.
func (l *Launcher) Launch(ctx context.Context, p *wirev1.Principal, workspaceID, appID, host, path string) (string, error) {
	found, err := entity.Ask[*appv1.Description](ctx, l.Asker, entity.Command{
		Kind: entity.KindApp, Identity: app.Identity(workspaceID, appID), Principal: p, Message: &appv1.DescribeApp{},
	})
	if err != nil {
		return "", err
	}
	a := found.GetApp()
	if a.GetRemoval() != nil || a.GetRemoved() {
		return "", errNotFound
	}
	if !mayVisit(p) {
		return "", errKind
	}
	workspace, err := entity.Ask[*workspacev1.Description](ctx, l.Asker, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: p, Message: &workspacev1.DescribeWorkspace{},
	})
	if err != nil {
		return "", err
	}
	if host, err = l.chooseHost(a, workspace.GetWorkspace().GetSlug(), host); err != nil {
		return "", err
	}
	if path == "" {
		path = "/"
	}
	if err := CheckPath(path); err != nil {
		return "", err
	}
	id := l.NewID(visit.IDPrefix)
	grant, hash := keys.New(grantStart, id)
	name, _ := hostName(host)
	if _, err := entity.AskAsPlatform[*wirev1.Done](ctx, l.Asker, entity.KindVisit, id, &visitv1.GrantVisit{
		Principal: p, WorkspaceId: workspaceID, AppId: appID, Host: name, GrantSha256: hash,
	}); err != nil {
		return "", err
	}
	return l.PublicURL.Scheme + "://" + host + withGrant(path, grant), nil
}

// mayVisit reports whether a principal may launch apps. People may, and so may OAuth clients and API keys that act for a person. Read-only keys
// may not, because an app can make changes on behalf of its visitors.
func mayVisit(p *wirev1.Principal) bool {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:
		return true
	case wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return !p.GetReadOnly()
	default:
		return entity.Human(p)
	}
}

// chooseHost returns the host of an address of the app, with its port. Errors: invalid_request.
func (l *Launcher) chooseHost(a *appv1.App, workspaceSlug, wanted string) (string, error) {
	standard := app.StandardHost(a.GetSlug(), workspaceSlug, l.EdgeHost)
	if wanted == "" {
		return standard, nil
	}
	name, ok := hostName(wanted)
	if !ok {
		return "", errHost
	}
	if own, _ := hostName(standard); name == own {
		return standard, nil
	}
	if d := a.GetDomain(); d.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE && d.GetHostname() == name {
		return CustomHost(name, l.EdgeHost), nil
	}
	return "", errHost
}

// CustomHost returns the host of the address of a custom domain, with the port of the edge host if it has one.
func CustomHost(name, edgeHost string) string {
	if _, port, ok := strings.Cut(edgeHost, ":"); ok {
		return name + ":" + port
	}
	return name
}

// CheckPath returns an error unless every browser reads a text after a host as a path of this host, with or without a query. Browsers may
// read // and \ as the beginning of a different host, and ignore control characters. Errors: invalid_request.
func CheckPath(text string) *entity.Error {
	parsed, err := url.Parse(text)
	switch {
	case err != nil, parsed.Scheme != "", parsed.Host != "", parsed.User != nil, parsed.Opaque != "",
		!strings.HasPrefix(text, "/"), strings.HasPrefix(text, "//"), strings.ContainsAny(text, `\#`), len(text) > maxPath,
		!utf8.ValidString(text), strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		return errPath
	}
	return nil
}

// withGrant returns a path with a grant in its query. The grant replaces all grants that the query had.
func withGrant(path, grant string) string {
	path, query, _ := strings.Cut(path, "?")
	query, _ = cutGrant(query)
	if query != "" {
		query += "&"
	}
	return path + "?" + query + GrantParameter + "=" + grant
}
