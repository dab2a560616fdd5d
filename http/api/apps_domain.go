package api

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

type domainRequest struct {
	Hostname string `json:"hostname"`
}

// domainAnswer is the response of operations on the domain of an app; nil: it has none.
type domainAnswer struct {
	Domain *domainView `json:"domain"`
}

// domainItem is a custom domain with its app.
type domainItem struct {
	Domain *domainView `json:"domain"`
	App    domainOwner `json:"app"`
}

type domainOwner struct {
	ID       string         `json:"id"`
	Slug     string         `json:"slug"`
	Name     string         `json:"name,omitzero"`
	Controls domainControls `json:"controls"`
}

type domainControls struct {
	ManageDomain bool `json:"manageDomain"`
}

func (a apps) readDomain(c *server.Call, _ server.None) (domainAnswer, error) {
	return answerDomain(a.request(c).Describe(c.Context, pathSlug(c)))
}

func answerDomain(found *appv1.Description, err error) (domainAnswer, error) {
	if err != nil {
		return domainAnswer{}, err
	}
	return domainAnswer{viewDomain(found.GetApp())}, nil
}

// decodeDomain decodes a request for a custom domain, and makes the host name canonical. Errors: invalid_request, also for a name of the
// platform.
func (a apps) decodeDomain(c *server.Call) (domainRequest, error) {
	in, err := server.Body[domainRequest](c)
	if err != nil {
		return in, err
	}
	if in.Hostname, err = app.CanonicalHostname(in.Hostname); err != nil {
		return in, err
	}
	if isOwnHost(in.Hostname, c.PublicHost(), a.addresses(c).EdgeHost) {
		return in, server.Invalid("hostname belongs to the platform")
	}
	return in, nil
}

func (a apps) attachDomain(c *server.Call, in domainRequest) (domainAnswer, error) {
	return answerDomain(a.request(c).AttachDomain(c.Context, pathSlug(c), in.Hostname))
}

// recheckDomain requests a check of the domain of the app in the path, or another attempt of its removal.
func (a apps) recheckDomain(c *server.Call, _ server.None) (domainAnswer, error) {
	return answerDomain(a.set(c, &appv1.RecheckDomain{}))
}

// removeDomain requests the removal of the domain of the app in the path. Serving it ends at once.
func (a apps) removeDomain(c *server.Call, _ server.None) (domainAnswer, error) {
	return answerDomain(a.set(c, &appv1.RemoveDomain{}))
}

func (a apps) listDomains(c *server.Call, in server.Listing) (server.Collection[domainItem], error) {
	manages, err := a.request(c).MayChange(c.Context)
	if err != nil {
		return server.Collection[domainItem]{}, err
	}
	return server.ReadList(c, entity.KindWorkspace, app.DomainList, in, func(row *appv1.DomainRow) domainItem {
		shown := viewDomain(&appv1.App{Id: row.GetAppId(), WorkspaceId: c.Workspace.ID, Domain: row.GetDomain()})
		return domainItem{shown, domainOwner{row.GetAppId(), row.GetSlug(), row.GetName(), domainControls{manages}}}
	})
}

// isOwnHost reports whether a host name is one of the platform: its public host, the host of standard addresses, or a name below one of them.
func isOwnHost(hostname, publicHost, edgeHost string) bool {
	for _, own := range []string{hostOf(publicHost), edgeHost, "localhost"} {
		if own != "" && (hostname == own || strings.HasSuffix(hostname, "."+own)) {
			return true
		}
	}
	return false
}
