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

type entered struct {
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

// books are all that can be read of a space.
type books struct {
	listed
	suspension  suspension
	members     []member
	invitations []invitation
	// audit is oldest first.
	audit []entered
}

// reading is everything that can be read when the work is done.
type reading struct {
	who    map[string]whoami
	own    map[string][]addressed
	spaces map[string]*books
}

// read asks everybody what they see, and of each space the person who pays for it.
func (w *town) read() (*reading, error) {
	r := &reading{who: map[string]whoami{}, own: map[string][]addressed{}, spaces: map[string]*books{}}
	for _, p := range w.people {
		var who whoami
		if err := p.fetch("/v1/whoami", &who); err != nil {
			return nil, err
		}
		r.who[p.id] = who
		for _, s := range who.Workspaces {
			s.Role = ""
			if one := r.spaces[s.ID]; one != nil && one.listed != s {
				return nil, fmt.Errorf("people see a space differently: %+v and %+v", one.listed, s)
			}
			r.spaces[s.ID] = &books{listed: s}
		}
		items, err := pages[addressed](p, "/v1/user/invitations")
		if err != nil {
			return nil, err
		}
		r.own[p.id] = items
	}
	for _, id := range slices.Sorted(maps.Keys(r.spaces)) {
		b := r.spaces[id]
		payer := w.byID[b.BillingUserID]
		if payer == nil {
			return nil, fmt.Errorf("nobody pays for %+v", b.listed)
		}
		if err := b.open(payer); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (b *books) open(payer *person) (err error) {
	at := "/v1/ws/" + b.Slug
	if b.members, err = pages[member](payer, at+"/members"); err != nil {
		return err
	}
	if b.invitations, err = pages[invitation](payer, at+"/invites"); err != nil {
		return err
	}
	if b.audit, err = pages[entered](payer, at+"/audit"); err != nil {
		return err
	}
	slices.Reverse(b.audit)
	return payer.fetch(at+"/admin/suspension", &b.suspension)
}

// fetch reads what must be there.
func (p *person) fetch(path string, into any) error {
	a := p.ask("GET", path, nil)
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s for %s: %d %s", path, p.email, a.status, a.body)
	}
	return a.read(into)
}

// pages walks a collection to its end.
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

// told are the deeds that a row may tell of.
func (e entered) deed(space string) deed {
	d, p := deed{event: e.Event, actor: e.ActorID, space: space}, e.Provenance
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

func (e entered) String() string {
	text, _ := json.Marshal(e)
	return string(text)
}
