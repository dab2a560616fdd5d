// Package account has the operations of people's accounts: finding and making one, its secrets, keys, links, grants and workspaces. The API
// (http/api), the pages for people (http/browser) and the operators' socket (http/operator) call the same ones.
package account

import (
	"cmp"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// idPrefix begins the ids of accounts.
const idPrefix = "usr_"

var (
	errNoEmail   = entity.Errorf(entity.InvalidRequest, "email is required")
	errForbidden = entity.Errorf(entity.Forbidden, "the credential may not do this")
	errNotFound  = entity.Errorf(entity.NotFound, "not found")
)

// CanonicalEmail returns an email address in the form in which it identifies an account. Errors: invalid_request.
func CanonicalEmail(text string) (string, error) {
	if text == "" {
		return "", errNoEmail
	}
	return email.Canonical(text)
}

// LookUpEmail returns the entity of an email address: the account that owns it, and the invitations to it.
func LookUpEmail(r service.Request, address string) (*emailv1.Email, error) {
	return service.SendAsPlatform[*emailv1.Email](r, entity.KindEmail, address, &emailv1.ResolveEmail{})
}

// LookUpID returns the id of the account that owns an email address; "" if there is none.
func LookUpID(r service.Request, address string) (string, error) {
	found, err := LookUpEmail(r, address)
	return found.GetUserId(), err
}

// Create makes the account that owns an email address, and returns the id. When it returns, the account is complete. Errors: email_taken,
// invalid_request.
func Create(r service.Request, address, name string) (userID string, err error) {
	userID = r.NewID(idPrefix)
	claim := service.PlatformCommand(r, entity.KindEmail, address, &emailv1.ClaimEmail{UserId: userID, Name: name})
	if _, err := r.Ask(claim); err != nil {
		return "", err
	}
	return userID, r.Settle(entity.KindEmail, address)
}

// Describe returns an account, as the platform. Errors: not_found.
func Describe(r service.Request, userID string) (*userv1.User, error) {
	return service.SendAsPlatform[*userv1.User](r, entity.KindUser, userID, &userv1.DescribeUser{})
}

// DescribeCaller returns the account of the caller.
func DescribeCaller(r service.Request) (*userv1.User, error) {
	return service.Send[*userv1.User](r, entity.Command{
		Kind: entity.KindUser, Identity: r.Sender().Principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
}

// DescribePassword returns the password of an account, with its state; empty if there is no such account.
func DescribePassword(r service.Request, userID string) (*userv1.Password, error) {
	found, err := service.SendAsPlatform[*userv1.Password](r, entity.KindUser, userID, &userv1.DescribePassword{})
	if entity.IsHidden(err) {
		return &userv1.Password{}, nil
	}
	return found, err
}

// LookUpPassword returns the account that owns an email address, and its password as DescribePassword does; "" and nil if there is none.
func LookUpPassword(r service.Request, address string) (userID string, _ *userv1.Password, err error) {
	if userID, err = LookUpID(r, address); err != nil || userID == "" {
		return "", nil, err
	}
	found, err := DescribePassword(r, userID)
	return userID, found, err
}

// ListSessions returns the browser sessions of an account.
func ListSessions(r service.Request, userID string) ([]*userv1.BrowserSession, error) {
	found, err := service.SendAsPlatform[*userv1.BrowserSessions](r, entity.KindUser, userID, &userv1.ListBrowserSessions{})
	return found.GetSessions(), err
}

// ReplacePassword sets the password of an account to one with a hash, with the hash of the secret of a link. When it returns, this member
// refuses the keys of the account's previous sessions. Errors: link_invalid.
func ReplacePassword(r service.Request, userID string, link []byte, hash string) error {
	open, err := ListSessions(r, userID)
	if err != nil {
		return err
	}
	set := service.PlatformCommand(r, entity.KindUser, userID, &userv1.SetPassword{LinkSecretSha256: link, PasswordHash: hash})
	if _, err := r.Ask(set); err != nil {
		return err
	}
	if err := r.Settle(entity.KindUser, userID); err != nil {
		return err
	}
	for _, session := range open {
		r.EndCredential(session.GetId())
	}
	return nil
}

// RefuseImpersonation refuses callers who impersonate somebody. It is for operations with an effect that would outlast the
// impersonation, or that change how the person signs in. Errors: forbidden.
func RefuseImpersonation(r service.Request) error {
	if r.Sender().Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION {
		return errForbidden
	}
	return nil
}

// Workspaces describes the workspaces of the caller, in the order in which the caller joined them; see DescribeWorkspaces.
func Workspaces(r service.Request) ([]*workspacev1.Description, error) {
	person, err := DescribeCaller(r)
	if err != nil {
		return nil, err
	}
	return DescribeWorkspaces(r, ReachableWorkspaces(r.Sender().Principal, person))
}

// DescribeWorkspaces describes workspaces of the caller, as the caller. It omits the workspaces that are deleted, that the
// caller is not a member of, or that the credential does not reach.
func DescribeWorkspaces(r service.Request, ids []string) ([]*workspacev1.Description, error) {
	found := make([]*workspacev1.Description, len(ids))
	err := service.ForEach(len(ids), func(i int) (err error) {
		found[i], err = describeWorkspace(r, ids[i])
		if entity.IsHidden(err) {
			return nil
		}
		return err
	})
	return slices.DeleteFunc(found, func(d *workspacev1.Description) bool {
		return d == nil || d.GetWorkspace().GetStatus() == workspacev1.Status_STATUS_DELETED
	}), err
}

func describeWorkspace(r service.Request, id string) (*workspacev1.Description, error) {
	return service.Send[*workspacev1.Description](r, entity.Command{Kind: entity.KindWorkspace, Identity: id, Message: &workspacev1.DescribeWorkspace{}})
}

// ReachableWorkspaces returns the ids of a person's workspaces that a credential reaches, in the order in which they were
// joined.
func ReachableWorkspaces(p *wirev1.Principal, user *userv1.User) []string {
	var ids []string
	for id := range user.GetWorkspaces() {
		if entity.Reaches(p, id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(user.GetWorkspaces()[a], user.GetWorkspaces()[b]), cmp.Compare(a, b))
	})
	return ids
}
