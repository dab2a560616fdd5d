package api

import (
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

// whoami describes the account and the workspaces that a credential acts for.
type whoami struct{}

func (w whoami) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/whoami", Scope: server.ScopeKey, Summary: "Describe the caller",
			Handler: server.Answer(http.StatusOK, server.Nothing, w.describe)},
	}
}

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

func (w whoami) describe(c *server.Call, _ server.None) (whoamiView, error) {
	user, workspaces, err := describeSubject(c)
	if err != nil {
		return whoamiView{}, err
	}
	view := whoamiView{
		User:          personView{user.GetId(), user.GetEmail(), user.GetName()},
		Workspaces:    make([]workspaceView, 0, len(workspaces)),
		Scopes:        scopes(c.Caller.Principal, workspaces),
		Versions:      versionsView{API: 1},
		Credential:    credentialView{credentialNames[c.Caller.Principal.GetKind()], c.Caller.Audience},
		InternalAdmin: c.Caller.InternalAdmin,
	}
	for _, w := range workspaces {
		view.Workspaces = append(view.Workspaces, viewWorkspace(w))
	}
	return view, nil
}

// describeSubject returns the account that the credential acts for, and its workspaces that the credential reaches.
// A computer's credential acts for the account that its workspace is billed to.
func describeSubject(c *server.Call) (*userv1.User, []*workspacev1.Description, error) {
	if c.Caller.Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM {
		return describePayer(c)
	}
	user, err := account.DescribeCaller(c)
	if err != nil {
		return nil, nil, err
	}
	workspaces, err := account.DescribeWorkspaces(c, account.ReachableWorkspaces(c.Caller.Principal, user))
	return user, workspaces, err
}

func describePayer(c *server.Call) (*userv1.User, []*workspacev1.Description, error) {
	workspace, err := server.Ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: c.Caller.Principal.GetWorkspaceId(), Message: &workspacev1.DescribeWorkspace{},
	})
	if err != nil {
		return nil, nil, err
	}
	user, err := account.Describe(c, workspace.GetWorkspace().GetBillingUserId())
	return user, []*workspacev1.Description{workspace}, err
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
		Status:                   StatusNames[w.GetStatus()],
		ServicingStatus:          "active",
		ServicingStatusChangedAt: w.GetServicingChangedAt(),
		Role:                     roleNames[d.GetRole()],
		BillingUserID:            w.GetBillingUserId(),
		Funding:                  fundingView{Active: true},
		DefaultTier:              tierView{Effective: tierNames[workspace.EffectiveTier(w)], Configured: tierNames[w.GetDefaultTier()]},
	}
	switch suspension := w.GetSuspension(); {
	case suspension.GetByOperator():
		view.ServicingStatus, view.AdminMessage = "banned", suspension.GetReason()
	case suspension != nil:
		view.ServicingStatus = "paused"
	}
	return view
}
