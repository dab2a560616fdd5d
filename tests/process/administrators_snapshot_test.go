package process

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

type member struct {
	ID, Email, Name, Role string
	IsBillingUser         bool
}

type invitation struct {
	ID, Email, Role                  string
	ExpiresAt, RevokedAt, ConsumedAt int64
}

type suspension struct {
	Suspended        bool
	SuspendedAt      int64
	SuspensionReason string
}

type auditRow struct {
	ID, Event, ActorID string
	At                 int64
	Provenance         struct {
		MemberUserID, TargetEmail, Role, OldRole, OldSlug, NewSlug, Slug, Name, Reason, Tier string
		ExpiresAt                                                                            int64
	}
}

type whoami struct {
	User       struct{ ID string }
	Workspaces []listed
}

type listed struct {
	ID, Slug, Name, Role, BillingUserID, ServicingStatus string
	DefaultTier                                          struct{ Configured string }
}

// A workspaceView is all the data that can be read of a workspace.
type workspaceView struct {
	listed
	suspension  suspension
	members     []member
	invitations []invitation
	// audit is sorted, oldest first.
	audit []auditRow
}

// A snapshot is all the data that can be read after the last request.
type snapshot struct {
	who    map[string]whoami
	own    map[string][]addressed
	spaces map[string]*workspaceView
}

// read reads the workspaces and invitations of every person, and each workspace as the person who pays for it.
func (s *scenario) read() (*snapshot, error) {
	r := &snapshot{who: map[string]whoami{}, own: map[string][]addressed{}, spaces: map[string]*workspaceView{}}
	for _, p := range s.people {
		var who whoami
		if err := p.fetch("/v1/whoami", &who); err != nil {
			return nil, err
		}
		r.who[p.id] = who
		for _, item := range who.Workspaces {
			item.Role = ""
			if one := r.spaces[item.ID]; one != nil && one.listed != item {
				return nil, fmt.Errorf("two people see a workspace differently: %+v and %+v", one.listed, item)
			}
			r.spaces[item.ID] = &workspaceView{listed: item}
		}
		items, err := pages[addressed](p, "/v1/user/invitations")
		if err != nil {
			return nil, err
		}
		r.own[p.id] = items
	}
	for _, id := range slices.Sorted(maps.Keys(r.spaces)) {
		b := r.spaces[id]
		payer := s.byID[b.BillingUserID]
		if payer == nil {
			return nil, fmt.Errorf("the workspace %+v has no billing user", b.listed)
		}
		if err := b.load(payer); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// load reads the lists and the suspension of the workspace.
func (b *workspaceView) load(payer *person) (err error) {
	at := "/v1/ws/" + b.Slug
	if b.members, err = pages[member](payer, at+"/members"); err != nil {
		return err
	}
	if b.invitations, err = pages[invitation](payer, at+"/invites"); err != nil {
		return err
	}
	if b.audit, err = pages[auditRow](payer, at+"/audit"); err != nil {
		return err
	}
	slices.Reverse(b.audit)
	return payer.fetch(at+"/admin/suspension", &b.suspension)
}

// fetch reads and decodes a resource that must exist.
func (p *person) fetch(path string, into any) error {
	a := p.send("GET", path, nil)
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s for %s: %d %s", path, p.email, a.status, a.body)
	}
	return a.read(into)
}

// pages returns all items of a collection.
func pages[Item any](p *person, path string) (all []Item, err error) {
	query := url.Values{"limit": {"100"}}
	for {
		var page struct {
			Items      []Item
			NextCursor *string
		}
		if err := p.fetch(path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// change returns the change that the row records.
func (e auditRow) change(space string) change {
	d, p := change{event: e.Event, actor: e.ActorID, space: space}, e.Provenance
	switch e.Event {
	case "workspace.created":
		d.space, d.target, d.value = "", p.Slug, p.Name
	case "workspace.renamed":
		d.target, d.value = p.NewSlug, p.Name
	case "workspace.suspended":
		d.value = p.Reason
	case "workspace.resumed":
	case "default_model.changed":
		d.value = p.Tier
	case "member.role_changed":
		d.target, d.value = p.MemberUserID, p.Role
	case "member.removed":
		d.target = p.MemberUserID
	case "invitation.created":
		d.target, d.value = p.TargetEmail, p.Role
	case "invitation.revoked", "invitation.accepted":
		d.target = p.TargetEmail
	}
	return d
}

func (e auditRow) String() string {
	text, _ := json.Marshal(e)
	return string(text)
}
