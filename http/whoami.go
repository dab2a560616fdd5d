package http

import (
	"cmp"
	"errors"
	"slices"

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
	ID                       string      `json:"id"`
	Slug                     string      `json:"slug"`
	Name                     string      `json:"name"`
	Status                   string      `json:"status"`
	ServicingStatus          string      `json:"servicingStatus"`
	ServicingStatusChangedAt int64       `json:"servicingStatusChangedAt,omitzero"`
	Role                     string      `json:"role"`
	BillingUserID            string      `json:"billingUserId"`
	Funding                  fundingView `json:"funding"`
	CreditRecovery           *string     `json:"creditRecovery"`
	DefaultTier              tierView    `json:"defaultTier"`
	AdminMessage             string      `json:"adminMessage,omitzero"`
}

type fundingView struct {
	Plan   *string `json:"plan"`
	Active bool    `json:"active"`
}

type tierView struct {
	Effective  string `json:"effective"`
	Configured string `json:"configured,omitzero"`
}

// defaultTier serves where a workspace has configured none.
const defaultTier = workspacev1.Tier_TIER_BALANCED

func (s *Server) whoami(c *call, _ none) (whoamiView, error) {
	user, workspaces, err := c.standsFor()
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

// standsFor is the person that the credential speaks for, and their workspaces that it reaches. A computer's own speaks
// for whom its workspace is billed to.
func (c *call) standsFor() (*userv1.User, []*workspacev1.Description, error) {
	if c.caller.principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM {
		return c.payer()
	}
	user, err := c.describeCaller()
	if err != nil {
		return nil, nil, err
	}
	workspaces, err := c.describeWorkspaces(joined(c.caller.principal, user))
	return user, workspaces, err
}

func (c *call) payer() (*userv1.User, []*workspacev1.Description, error) {
	its, err := ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.caller.principal.GetWorkspaceId(), Message: &workspacev1.DescribeWorkspace{},
	})
	if err != nil {
		return nil, nil, err
	}
	user, err := c.describe(its.GetWorkspace().GetBillingUserId())
	return user, []*workspacev1.Description{its}, err
}

// describeCaller is the person behind the credential.
func (c *call) describeCaller() (*userv1.User, error) {
	return ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
}

// wide bounds the questions that one request has under way.
const wide = 16

// describeWorkspaces asks each of some workspaces of a person. One that is deleted, no longer knows the person, or may
// not be seen with the credential is left out.
func (c *call) describeWorkspaces(ids []string) ([]*workspacev1.Description, error) {
	found := make([]*workspacev1.Description, len(ids))
	err := each(len(ids), func(i int) (err error) {
		found[i], err = ask[*workspacev1.Description](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: ids[i], Message: &workspacev1.DescribeWorkspace{},
		})
		if hidden(err) {
			return nil
		}
		return err
	})
	return slices.DeleteFunc(found, func(d *workspacev1.Description) bool {
		return d == nil || d.GetWorkspace().GetStatus() == workspacev1.Status_STATUS_DELETED
	}), err
}

// joined are a person's workspaces that a credential reaches, in the order of joining.
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
	view := workspaceView{
		ID:                       w.GetId(),
		Slug:                     w.GetSlug(),
		Name:                     w.GetName(),
		Status:                   statusNames[w.GetStatus()],
		ServicingStatus:          "active",
		ServicingStatusChangedAt: w.GetServicingChangedAt(),
		Role:                     roleNames[d.GetRole()],
		BillingUserID:            w.GetBillingUserId(),
		Funding:                  fundingView{Active: true},
		DefaultTier:              tierView{Effective: tierNames[defaultTier], Configured: tierNames[w.GetDefaultTier()]},
	}
	if view.DefaultTier.Configured != "" {
		view.DefaultTier.Effective = view.DefaultTier.Configured
	}
	switch suspension := w.GetSuspension(); {
	case suspension.GetByOperator():
		view.ServicingStatus, view.AdminMessage = "banned", suspension.GetReason()
	case suspension != nil:
		view.ServicingStatus = "paused"
	}
	return view
}
