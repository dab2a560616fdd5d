package api

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// lookUpEmail returns the entity of an email address: the account that owns it, and the invitations to it.
func lookUpEmail(c *server.Call, address string) (*emailv1.Email, error) {
	return server.Ask[*emailv1.Email](c, entity.Command{
		Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), Message: &emailv1.ResolveEmail{},
	})
}

// LookUpUserID returns the id of the account that owns an email address; "" if there is none.
func LookUpUserID(c *server.Call, address string) (string, error) {
	found, err := lookUpEmail(c, address)
	return found.GetUserId(), err
}

// DescribePassword returns the password of an account, with its state; empty if there is no such account.
func DescribePassword(c *server.Call, userID string) (*userv1.Password, error) {
	found, err := server.Ask[*userv1.Password](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribePassword{},
	})
	if IsHidden(err) {
		return &userv1.Password{}, nil
	}
	return found, err
}

// DescribeUser returns an account, as the platform. Errors: not_found.
func DescribeUser(c *server.Call, userID string) (*userv1.User, error) {
	return server.Ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeUser{},
	})
}

// SplitLinkToken splits the token of a link into n parts: ids without their prefixes, and a secret. It returns nil if the
// token is malformed.
func SplitLinkToken(token string, n int) []string {
	if len(token) != (n-1)*(entity.ULIDLength+1)+keys.SecretLength {
		return nil
	}
	parts := strings.Split(token, ".")
	if len(parts) != n || len(parts[n-1]) != keys.SecretLength || !keys.IsSecret(parts[n-1]) {
		return nil
	}
	for _, id := range parts[:n-1] {
		if !entity.IsULID(id) {
			return nil
		}
	}
	return parts
}

// CanonicalEmail returns an email address in the form in which it identifies an account. Errors: invalid_request.
func CanonicalEmail(text string) (string, error) {
	if text == "" {
		return "", server.Invalid("email is required")
	}
	return email.Canonical(text)
}

// PlatformCommand returns a command of the platform, with an id.
func PlatformCommand(c *server.Call, kind, identity string, m proto.Message) entity.Command {
	return entity.Command{
		Kind: kind, Identity: identity, Principal: entity.Platform(), ID: c.NewID("cmd_"), Message: m,
	}
}

// ListSessions returns the browser sessions of an account.
func ListSessions(c *server.Call, userID string) ([]*userv1.BrowserSession, error) {
	found, err := server.Ask[*userv1.BrowserSessions](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.ListBrowserSessions{},
	})
	return found.GetSessions(), err
}

// IsID reports whether text is an id with a prefix.
func IsID(text, kind string) bool {
	id, ok := strings.CutPrefix(text, kind)
	return ok && entity.IsULID(id)
}

// Truncate returns the longest valid beginning of a text with at most a number of bytes.
func Truncate(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// DescribeCaller returns the account of the caller.
func DescribeCaller(c *server.Call) (*userv1.User, error) {
	return server.Ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
}

// DescribeWorkspaces describes workspaces of the caller, as the caller. It omits those that are deleted, that the caller is
// not a member of, or that the credential does not reach.
func DescribeWorkspaces(c *server.Call, ids []string) ([]*workspacev1.Description, error) {
	found := make([]*workspacev1.Description, len(ids))
	err := server.ForEach(len(ids), func(i int) (err error) {
		found[i], err = server.Ask[*workspacev1.Description](c, entity.Command{
			Kind: entity.KindWorkspace, Identity: ids[i], Message: &workspacev1.DescribeWorkspace{},
		})
		if IsHidden(err) {
			return nil
		}
		return err
	})
	return slices.DeleteFunc(found, func(d *workspacev1.Description) bool {
		return d == nil || d.GetWorkspace().GetStatus() == workspacev1.Status_STATUS_DELETED
	}), err
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

// IsHidden reports whether an error says that something does not exist for the caller.
func IsHidden(err error) bool {
	return entity.HasCode(err, entity.NotFound, entity.Forbidden)
}

// describePathWorkspace describes the workspace in the path, as the platform. The caller must have been authorized.
func describePathWorkspace(c *server.Call) (*workspacev1.Workspace, error) {
	return DescribeWorkspace(c, c.Workspace.ID)
}

// DescribeWorkspace describes a workspace, as the platform. Errors: not_found.
func DescribeWorkspace(c *server.Call, id string) (*workspacev1.Workspace, error) {
	found, err := server.Ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: id, Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
	})
	return found.GetWorkspace(), err
}

// DescribeInvitation returns an invitation, as the platform. Errors: not_found.
func DescribeInvitation(c *server.Call, workspaceID, id string) (*workspacev1.Invitation, error) {
	return server.Ask[*workspacev1.Invitation](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(),
		Message: &workspacev1.DescribeInvitation{InvitationId: id},
	})
}

// NextID returns the position after a page of items in the order of ids; "" if it is the last page.
func NextID[Item interface{ GetId() string }](items []Item, more bool) string {
	if !more || len(items) == 0 {
		return ""
	}
	return items[len(items)-1].GetId()
}

// CallerQuery returns a query to the caller's account.
func CallerQuery(c *server.Call, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), Message: m}
}

// callerCommand returns a command, with an id, that changes the caller's account.
func callerCommand(c *server.Call, m userv1.Command) entity.Command {
	return entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), ID: c.NewID("cmd_"), Message: m,
	}
}

// settleCaller waits until the reactions to changes of the caller's account are done.
func settleCaller(c *server.Call) error {
	return c.Settle(entity.KindUser, c.Caller.Principal.GetUserId())
}
