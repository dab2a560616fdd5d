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
	id, err := pathApp(c)
	if err != nil {
		return domainAnswer{}, err
	}
	return answerDomain(describeApp(c, id))
}

func answerDomain(found *appv1.Description, err error) (domainAnswer, error) {
	if err != nil {
		return domainAnswer{}, err
	}
	return domainAnswer{viewDomain(found.GetApp())}, nil
}

// attachDomain requests a custom domain for the app in the path, and waits until its name is reserved. Errors: not_found, forbidden,
// invalid_request, domain_occupied, domain_cleanup_pending, hostname_in_use.
func (a apps) attachDomain(c *server.Call, in domainRequest) (domainAnswer, error) {
	if err := c.Authorize(); err != nil {
		return domainAnswer{}, err
	}
	id, err := pathApp(c)
	if err != nil {
		return domainAnswer{}, err
	}
	hostname, err := app.CanonicalHostname(in.Hostname)
	if err != nil {
		return domainAnswer{}, err
	}
	if isOwnHost(hostname, c.PublicHost(), a.addresses(c).EdgeHost) {
		return domainAnswer{}, server.Invalid("hostname belongs to the platform")
	}
	found, err := server.Ask[*appv1.Description](c, appCommand(c, id, &appv1.AttachDomain{DomainId: c.NewID(app.DomainPrefix), Hostname: hostname}))
	if err != nil {
		return domainAnswer{}, err
	}
	domain := found.GetApp().GetDomain().GetId()
	if !found.GetApp().GetDomain().GetClaimed() {
		// The binding answers within the time of an ordinary request, or the client repeats the request.
		if found, err = server.Ask[*appv1.Description](c, appCommand(c, id, &appv1.AwaitApp{DomainId: domain})); err != nil {
			return domainAnswer{}, err
		}
	}
	if err := app.RefusalOf(found.GetApp(), domain); err != nil {
		return domainAnswer{}, err
	}
	return domainAnswer{viewDomain(found.GetApp())}, nil
}

// recheckDomain requests a check of the domain of the app in the path, or another attempt of its removal.
func (a apps) recheckDomain(c *server.Call, _ server.None) (domainAnswer, error) {
	return a.commandDomain(c, &appv1.RecheckDomain{})
}

// removeDomain requests the removal of the domain of the app in the path. Serving it ends at once.
func (a apps) removeDomain(c *server.Call, _ server.None) (domainAnswer, error) {
	return a.commandDomain(c, &appv1.RemoveDomain{})
}

// commandDomain sends a command to the app in the path, and returns the domain when the binding of the name has got its part.
func (a apps) commandDomain(c *server.Call, m appv1.Command) (domainAnswer, error) {
	if err := c.Authorize(); err != nil {
		return domainAnswer{}, err
	}
	id, err := pathApp(c)
	if err != nil {
		return domainAnswer{}, err
	}
	found, err := server.Ask[*appv1.Description](c, appCommand(c, id, m))
	if err != nil {
		return domainAnswer{}, err
	}
	return domainAnswer{viewDomain(found.GetApp())}, c.Settle(entity.KindApp, app.Identity(c.Workspace.ID, id))
}

func (a apps) listDomains(c *server.Call, in server.Listing) (server.Collection[domainItem], error) {
	granted, err := c.FetchAuthorization()
	if err != nil {
		return server.Collection[domainItem]{}, err
	}
	manages, err := mayChangeApps(c, entity.Call{Principal: c.Caller.Principal, Role: granted.GetRole()})
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
