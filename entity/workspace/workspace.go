// Package workspace holds the rules of a workspace: how it comes to be, who belongs to it, and who may do what in it.
//
//	(none) ──CreateWorkspace──► provisioning ──ReportReady──► active
//	                            unhealthy    ──ReportReady──►
//
// The creator is its owner and billing user from the first event on. ReportReady changes no other status: what an
// operator has archived, retired or deleted does not come back because its computer does.
//
// Whatever belongs to a workspace is guarded by Check or Allow (access.go), on the principal of the call.
package workspace

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxNameLength is the longest name, in characters (specification, Limits: 1 to 200).
const MaxNameLength = 200

// Zero is the state before the first event.
func Zero(identity string) *workspacev1.Workspace {
	return &workspacev1.Workspace{Id: identity}
}

// Decide turns a command into events. No events and no error: already so, or a query.
// Errors: not_found, forbidden, invalid_request.
func Decide(call entity.Call, s *workspacev1.Workspace, c workspacev1.Command) ([]workspacev1.Event, error) {
	switch c := c.(type) {
	case *workspacev1.CreateWorkspace:
		return create(call, s, c)
	case *workspacev1.ReportReady:
		return reportReady(call, s)
	case *workspacev1.Authorize:
		return nil, Check(call, s, needOf(c))
	case *workspacev1.DescribeWorkspace:
		return nil, Check(call, s, entity.Need{})
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event. It shares with s what the event did not change.
func Evolve(s *workspacev1.Workspace, e workspacev1.Event) *workspacev1.Workspace {
	next := copyOf(s)
	switch e := e.(type) {
	case *workspacev1.WorkspaceCreated:
		next.Slug = e.GetSlug()
		next.Name = e.GetName()
		next.Status = workspacev1.Status_STATUS_PROVISIONING
		next.BillingUserId = e.GetCreatorId()
		next.CreatedAt = e.GetAt()
		next.Members = map[string]*workspacev1.Membership{e.GetCreatorId(): {
			UserId:   e.GetCreatorId(),
			Role:     workspacev1.Role_ROLE_OWNER,
			JoinedAt: e.GetAt(),
		}}
	case *workspacev1.WorkspaceReady:
		next.Status = workspacev1.Status_STATUS_ACTIVE
	}
	return next
}

// Reply is what the asker gets; s is the state after the events.
func Reply(
	call entity.Call, s *workspacev1.Workspace, c workspacev1.Command, _ []workspacev1.Event,
) proto.Message {
	switch c.(type) {
	case *workspacev1.Authorize:
		return authorized(call, s)
	case *workspacev1.DescribeWorkspace:
		return describe(call, s)
	case *workspacev1.CreateWorkspace, *workspacev1.ReportReady:
	}
	return &wirev1.Done{}
}

// CheckName tells why a name is no workspace's; nil where it may be one.
func CheckName(name string) *entity.Error {
	switch {
	case !utf8.ValidString(name):
		return errNameText
	case strings.ContainsFunc(name, unicode.IsControl):
		return errNameText
	case name == "" || utf8.RuneCountInString(name) > MaxNameLength:
		return errNameLength
	}
	return nil
}

func create(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.CreateWorkspace,
) ([]workspacev1.Event, error) {
	switch {
	case !entity.IsPlatform(call.Principal):
		return nil, errPlatformOnly
	case exists(s):
		return nil, nil
	case c.GetCreatorId() == "":
		return nil, errNoCreator
	}
	if err := CheckName(c.GetName()); err != nil {
		return nil, err
	}
	return []workspacev1.Event{&workspacev1.WorkspaceCreated{
		Slug:      c.GetSlug(),
		Name:      c.GetName(),
		CreatorId: c.GetCreatorId(),
		At:        call.At(),
	}}, nil
}

func reportReady(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	if !entity.IsPlatform(call.Principal) {
		return nil, errPlatformOnly
	}
	switch s.GetStatus() {
	case workspacev1.Status_STATUS_UNSPECIFIED:
		return nil, errNotFound
	case workspacev1.Status_STATUS_PROVISIONING, workspacev1.Status_STATUS_UNHEALTHY:
		return []workspacev1.Event{&workspacev1.WorkspaceReady{At: call.At()}}, nil
	default:
		return nil, nil
	}
}

// describe leaves the members out: who may see them is another capability's question.
func describe(call entity.Call, s *workspacev1.Workspace) *workspacev1.Description {
	shown := copyOf(s)
	shown.Members = nil
	access := authorized(call, s)
	return &workspacev1.Description{Workspace: shown, Role: access.Role, Capabilities: access.Capabilities}
}

func exists(s *workspacev1.Workspace) bool {
	return s.GetStatus() != workspacev1.Status_STATUS_UNSPECIFIED
}

func copyOf(s *workspacev1.Workspace) *workspacev1.Workspace {
	return &workspacev1.Workspace{
		Id:            s.GetId(),
		Slug:          s.GetSlug(),
		Name:          s.GetName(),
		Status:        s.GetStatus(),
		BillingUserId: s.GetBillingUserId(),
		Members:       s.GetMembers(),
		CreatedAt:     s.GetCreatedAt(),
	}
}
