package http

import (
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type whoamiView struct {
	User          personView      `json:"user"`
	Workspaces    []workspaceView `json:"workspaces"`
	Scopes        []string        `json:"scopes"`
	Versions      versionsView    `json:"versions"`
	InternalAdmin bool            `json:"internalAdmin"`
	Credential    credentialView  `json:"credential"`
}

type personView struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Name  string `json:"name,omitzero"`
}

type versionsView struct {
	API int `json:"api"`
}

type credentialView struct {
	Kind     string `json:"kind"`
	Audience string `json:"audience,omitzero"`
}

type workspaceView struct {
	ID              string      `json:"id"`
	Slug            string      `json:"slug"`
	Name            string      `json:"name"`
	Status          string      `json:"status"`
	ServicingStatus string      `json:"servicingStatus"`
	Role            string      `json:"role"`
	BillingUserID   string      `json:"billingUserId"`
	Funding         fundingView `json:"funding"`
	CreditRecovery  *string     `json:"creditRecovery"`
	DefaultTier     tierView    `json:"defaultTier"`
}

type fundingView struct {
	Plan   *string `json:"plan"`
	Active bool    `json:"active"`
}

type tierView struct {
	Effective string `json:"effective"`
}

var statusNames = map[workspacev1.Status]string{
	workspacev1.Status_STATUS_PROVISIONING: "provisioning",
	workspacev1.Status_STATUS_ACTIVE:       "active",
	workspacev1.Status_STATUS_UNHEALTHY:    "unhealthy",
	workspacev1.Status_STATUS_ARCHIVED:     "archived",
	workspacev1.Status_STATUS_RETIRED:      "retired",
	workspacev1.Status_STATUS_DELETED:      "deleted",
}

var roleNames = map[workspacev1.Role]string{
	workspacev1.Role_ROLE_OWNER:  "owner",
	workspacev1.Role_ROLE_EDITOR: "editor",
	workspacev1.Role_ROLE_VIEWER: "viewer",
}

var credentialNames = map[wirev1.CredentialKind]string{
	wirev1.CredentialKind_CREDENTIAL_KIND_USER:            "user",
	wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION: "browser_session",
	wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:           "oauth",
	wirev1.CredentialKind_CREDENTIAL_KIND_APP:             "app",
	wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:       "system_vm",
	wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:   "impersonation",
}

func (s *Server) whoami(c *call, _ none) (whoamiView, error) {
	user, err := ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
	if err != nil {
		return whoamiView{}, err
	}
	workspaces, err := c.describeWorkspaces(user)
	if err != nil {
		return whoamiView{}, err
	}
	view := whoamiView{
		User:          personView{user.GetId(), user.GetEmail(), user.GetName()},
		Workspaces:    make([]workspaceView, 0, len(workspaces)),
		Scopes:        scopes(c.caller.principal, workspaces),
		Versions:      versionsView{API: 1},
		Credential:    credentialView{credentialNames[c.caller.principal.GetKind()], c.caller.audience},
		InternalAdmin: c.caller.internalAdmin,
	}
	for _, w := range workspaces {
		view.Workspaces = append(view.Workspaces, viewWorkspace(w))
	}
	return view, nil
}

// wide bounds the questions that one request has under way.
const wide = 16

// describeWorkspaces asks each of a person's workspaces, in the order of joining. One that no longer knows the person,
// or that the credential may not see, is left out.
func (c *call) describeWorkspaces(user *userv1.User) ([]*workspacev1.Description, error) {
	ids := joined(c.caller.principal, user)
	found := make([]*workspacev1.Description, len(ids))
	var group errgroup.Group
	group.SetLimit(wide)
	for i, id := range ids {
		group.Go(func() (err error) {
			found[i], err = ask[*workspacev1.Description](c, entity.Command{
				Kind: entity.KindWorkspace, Identity: id, Message: &workspacev1.DescribeWorkspace{},
			})
			if hidden(err) {
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(found, func(d *workspacev1.Description) bool { return d == nil }), err
}

func joined(p *wirev1.Principal, user *userv1.User) []string {
	var ids []string
	for id := range user.GetWorkspaces() {
		if p.GetWorkspaceId() == "" || p.GetWorkspaceId() == id {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(user.GetWorkspaces()[a], user.GetWorkspaces()[b]), cmp.Compare(a, b))
	})
	return ids
}

// hidden tells of an error that something is not there for the caller.
func hidden(err error) bool {
	var refused *entity.Error
	return errors.As(err, &refused) && (refused.Code == entity.NotFound || refused.Code == entity.Forbidden)
}

func scopes(p *wirev1.Principal, workspaces []*workspacev1.Description) []string {
	granted := []string{"api_key"}
	if entity.Human(p) {
		granted = append(granted, "human")
	}
	for _, d := range workspaces {
		for _, capability := range d.GetCapabilities() {
			granted = append(granted, "ws:"+d.GetWorkspace().GetSlug()+":"+capability)
		}
	}
	slices.Sort(granted)
	return granted
}

func viewWorkspace(d *workspacev1.Description) workspaceView {
	w := d.GetWorkspace()
	return workspaceView{
		ID:              w.GetId(),
		Slug:            w.GetSlug(),
		Name:            w.GetName(),
		Status:          statusNames[w.GetStatus()],
		ServicingStatus: "active",
		Role:            roleNames[d.GetRole()],
		BillingUserID:   w.GetBillingUserId(),
		Funding:         fundingView{Active: true},
		DefaultTier:     tierView{Effective: "balanced"},
	}
}
