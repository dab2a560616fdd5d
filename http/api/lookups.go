package api

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/http/server"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// resolveEmail is whose an address is, and which workspaces invited it.
func lookUpEmail(c *server.Call, address string) (*emailv1.Email, error) {
	return server.Ask[*emailv1.Email](c, entity.Command{
		Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), Message: &emailv1.ResolveEmail{},
	})
}

// PersonAt is whose an address is; "" where it is nobody's.
func LookUpUserID(c *server.Call, address string) (string, error) {
	found, err := lookUpEmail(c, address)
	return found.GetUserId(), err
}

// PasswordOf is how a person proves who they are; zero where there is no such person.
func DescribePassword(c *server.Call, userID string) (*userv1.Password, error) {
	found, err := server.Ask[*userv1.Password](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribePassword{},
	})
	if IsHidden(err) {
		return &userv1.Password{}, nil
	}
	return found, err
}

// Describe is who somebody is.
func DescribeUser(c *server.Call, userID string) (*userv1.User, error) {
	return server.Ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeUser{},
	})
}

// TokenParts are the parts of what a link carries: ids without their kinds, and a secret. nil: it is none.
func SplitLinkToken(token string, n int) []string {
	if len(token) != (n-1)*(entity.ULIDLength+1)+server.SecretLength {
		return nil
	}
	parts := strings.Split(token, ".")
	if len(parts) != n || len(parts[n-1]) != server.SecretLength || !server.IsSecret(parts[n-1]) {
		return nil
	}
	for _, id := range parts[:n-1] {
		if !entity.IsULID(id) {
			return nil
		}
	}
	return parts
}

// CheckEmail is an address in the one form in which it names a person.
func CanonicalEmail(text string) (string, error) {
	if text == "" {
		return "", server.Invalid("email is required")
	}
	return email.Canonical(text)
}

// AsPlatform is a command of an operator, who is on the server's own machine.
func PlatformCommand(c *server.Call, kind, identity string, m proto.Message) entity.Command {
	return entity.Command{
		Kind: kind, Identity: identity, Principal: entity.Platform(), ID: c.NewID("cmd_"), Message: m,
	}
}

// SessionsOf are a person's.
func ListSessions(c *server.Call, userID string) ([]*userv1.BrowserSession, error) {
	found, err := server.Ask[*userv1.BrowserSessions](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.ListBrowserSessions{},
	})
	return found.GetSessions(), err
}

// IsID tells whether text is an id of a kind.
func IsID(text, kind string) bool {
	id, ok := strings.CutPrefix(text, kind)
	return ok && entity.IsULID(id)
}

// Cut is the longest valid text of at most so many bytes that a text begins with.
func Truncate(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// DescribeCaller is the person behind the credential.
func DescribeCaller(c *server.Call) (*userv1.User, error) {
	return server.Ask[*userv1.User](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
}

// DescribeWorkspaces asks each of some workspaces of a person. One that is deleted, no longer knows the person, or may
// not be seen with the credential is left out.
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

// Joined are a person's workspaces that a credential reaches, in the order of joining.
func ReachableWorkspaces(p *wirev1.Principal, user *userv1.User) []string {
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

// Hidden tells of an error that something is not there for the caller.
func IsHidden(err error) bool {
	var refused *entity.Error
	return errors.As(err, &refused) && (refused.Code == entity.NotFound || refused.Code == entity.Forbidden)
}

// describeWorkspace is the path's workspace as the platform sees it, for who has been let in.
func describePathWorkspace(c *server.Call) (*workspacev1.Workspace, error) {
	return DescribeWorkspace(c, c.Workspace.ID)
}

func DescribeWorkspace(c *server.Call, id string) (*workspacev1.Workspace, error) {
	found, err := server.Ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: id, Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
	})
	return found.GetWorkspace(), err
}

func DescribeInvitation(c *server.Call, workspaceID, id string) (*workspacev1.Invitation, error) {
	return server.Ask[*workspacev1.Invitation](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(),
		Message: &workspacev1.DescribeInvitation{InvitationId: id},
	})
}

// IDAfter is where a page in the order of ids ended, where there are more.
func NextID[Item interface{ GetId() string }](items []Item, more bool) string {
	if !more || len(items) == 0 {
		return ""
	}
	return items[len(items)-1].GetId()
}

// OfCaller asks about the caller.
func CallerQuery(c *server.Call, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), Message: m}
}

// changeCaller is a command that changes what the caller is or holds.
func callerCommand(c *server.Call, m userv1.Command) entity.Command {
	return entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(), ID: c.NewID("cmd_"), Message: m,
	}
}

// settleCaller waits for what follows from that.
func settleCaller(c *server.Call) error {
	return c.Settle(entity.KindUser, c.Caller.Principal.GetUserId())
}
