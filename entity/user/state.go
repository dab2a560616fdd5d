package user

import (
	"maps"
	"slices"

	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

func exists(s *userv1.User) bool { return s.GetEmail() != "" }

func workspaceIDs(s *userv1.User) []string { return slices.Sorted(maps.Keys(s.GetWorkspaces())) }

// walk is a command that asks for a page.
type walk interface {
	GetAfter() string
	GetLimit() int32
}

func checkPage(c walk) error {
	if c.GetLimit() < 1 || c.GetLimit() > MaxPage {
		return errPageLimit
	}
	return nil
}

// pageOf walks by id, which is the order of creation, and tells whether more follow.
func pageOf[V any](all map[string]V, c walk) (page []V, more bool) {
	ids := slices.Sorted(maps.Keys(all))
	from, found := slices.BinarySearch(ids, c.GetAfter())
	if found {
		from++
	}
	ids = ids[from:]
	for _, id := range ids[:min(len(ids), int(c.GetLimit()))] {
		page = append(page, all[id])
	}
	return page, len(ids) > int(c.GetLimit())
}

func copyOf(s *userv1.User) *userv1.User {
	return &userv1.User{
		Id:               s.GetId(),
		Email:            s.GetEmail(),
		Name:             s.GetName(),
		CreatedAt:        s.GetCreatedAt(),
		Workspaces:       s.GetWorkspaces(),
		ApiKeys:          s.GetApiKeys(),
		FirstName:        s.GetFirstName(),
		LastName:         s.GetLastName(),
		DisabledAt:       s.GetDisabledAt(),
		InternalAdmin:    s.GetInternalAdmin(),
		PasswordHash:     s.GetPasswordHash(),
		OneTimeLink:      s.GetOneTimeLink(),
		BrowserSessions:  s.GetBrowserSessions(),
		Grants:           s.GetGrants(),
		Machines:         s.GetMachines(),
		Impersonations:   s.GetImpersonations(),
		LinkedIdentities: s.GetLinkedIdentities(),

		CreatedWorkspaces: s.GetCreatedWorkspaces(),
	}
}
