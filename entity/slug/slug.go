// Package slug holds the rules of a workspace's address segment, which names at most one workspace.
//
//	free ──ClaimSlug──► taken ──ReleaseSlug──► reserved ──(time)──► free
//
// A released slug is reserved for the workspace that had it, which may take it again at any time; for everybody else it
// is taken until then, so that nobody receives traffic that is meant for its owner. A reservation outlives that its
// owner takes the slug again, for the case that the slug comes back at once.
//
// A slug's identity is the slug itself, so that its one stream settles who of several claimants wins. The platform
// alone asks it; the person on whose behalf it does is inside the claim.
package slug

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a slug")
	errTaken          = entity.Errorf(entity.SlugTaken, "slug is taken")
	errNoWorkspace    = entity.Errorf(entity.InvalidRequest, "workspaceId is empty")
	errNoCreator      = entity.Errorf(entity.InvalidRequest, "creatorId is empty")
	errNoPrincipal    = entity.Errorf(entity.InvalidRequest, "a rename names nobody who asks for it")
	errNoClaim        = entity.Errorf(entity.InvalidRequest, "a rename's claim has no id")
	errHeld           = &entity.Error{
		Code: entity.Unavailable, Message: "the slug is being taken or given up by another renaming", RetryAfter: time.Second,
	}
	errReservedUntil = entity.Errorf(entity.InvalidRequest, "reservedUntil is before 1970")
)

// Zero is the state before the first event.
func Zero(identity string) *slugv1.Slug {
	return &slugv1.Slug{Slug: identity}
}

// Kind describes a slug, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
	Name: entity.KindSlug, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: slug_taken, invalid_request, forbidden, unavailable.
func Decide(call entity.Call, s *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
	switch c := c.(type) {
	case *slugv1.ClaimSlug:
		return claim(call, s, c)
	case *slugv1.ReleaseSlug:
		return release(call, s, c)
	case *slugv1.ResolveSlug:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *slugv1.Slug, e slugv1.Event) *slugv1.Slug {
	switch e := e.(type) {
	case *slugv1.SlugClaimed:
		next := &slugv1.Slug{
			Slug: e.GetSlug(), WorkspaceId: e.GetWorkspaceId(),
			ClaimId: e.GetRename().GetId(), RefusedClaimId: s.GetRefusedClaimId(),
		}
		if s.GetReservedFor() == e.GetWorkspaceId() {
			next.ReservedFor, next.ReservedUntil = s.GetReservedFor(), s.GetReservedUntil()
		}
		return next
	case *slugv1.SlugReleased:
		next := &slugv1.Slug{Slug: s.GetSlug(), ClaimId: s.GetClaimId(), RefusedClaimId: s.GetRefusedClaimId()}
		if e.GetRefusedClaimId() != "" {
			next.RefusedClaimId = e.GetRefusedClaimId()
		}
		if until := max(e.GetReservedUntil(), s.GetReservedUntil()); until > 0 {
			next.ReservedFor, next.ReservedUntil = e.GetWorkspaceId(), until
		}
		return next
	}
	return s
}

// React returns the commands that follow from an event. A slug that is claimed for a new workspace creates it.
//
// A slug that is claimed for a renaming renames the workspace on behalf of the person who requested it. If the workspace
// refuses, the slug is released. Until then the slug belongs to the workspace: reactions to one slug run in order, and only
// this one releases it.
func React(identity string, event slugv1.Event) []entity.Reaction {
	e, claimed := event.(*slugv1.SlugClaimed)
	switch {
	case !claimed:
		return nil
	case e.GetRename() == nil:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.CreateWorkspace{
			Slug: e.GetSlug(), Name: e.GetWorkspaceName(), CreatorId: e.GetCreatorId(),
			CreatorEmail: e.GetCreatorEmail(), CreatorName: e.GetCreatorName(), ImpersonatorId: e.GetImpersonatorId(),
		})}
	default:
		return []entity.Reaction{{
			Command: entity.Command{
				Kind: entity.KindWorkspace, Identity: e.GetWorkspaceId(), Principal: e.GetRename().GetPrincipal(),
				Message: &workspacev1.RenameWorkspace{Slug: e.GetSlug(), Name: e.GetRename().GetName()},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindSlug, Identity: identity,
				Message: &slugv1.ReleaseSlug{WorkspaceId: e.GetWorkspaceId(), RefusedClaimId: e.GetRename().GetId()},
			},
		}}
	}
}

// Reply is the state for every command.
func Reply(_ entity.Call, s *slugv1.Slug, c slugv1.Command, _ []slugv1.Event) proto.Message {
	switch c.(type) {
	case *slugv1.ClaimSlug, *slugv1.ReleaseSlug, *slugv1.ResolveSlug:
	}
	return s
}

func claim(call entity.Call, s *slugv1.Slug, c *slugv1.ClaimSlug) ([]slugv1.Event, error) {
	switch {
	case c.GetWorkspaceId() == "":
		return nil, errNoWorkspace
	case c.GetWorkspaceId() == s.GetWorkspaceId():
		return nil, again(s, c)
	}
	if err := checkClaim(call.Identity, c); err != nil {
		return nil, err
	}
	if s.GetWorkspaceId() != "" || keptFrom(call, s, c.GetWorkspaceId()) {
		return nil, errTaken
	}
	return []slugv1.Event{&slugv1.SlugClaimed{
		Slug:          call.Identity,
		WorkspaceId:   c.GetWorkspaceId(),
		WorkspaceName: c.GetWorkspaceName(),
		CreatorId:     c.GetCreatorId(),
		CreatorEmail:  c.GetCreatorEmail(),
		CreatorName:   c.GetCreatorName(),
		Rename:        c.GetRename(),

		ImpersonatorId: c.GetImpersonatorId(),
		At:             call.At(),
	}}, nil
}

// again refuses another claim to a slug that the workspace holds: whose it is under way, or was, tells its own outcome.
func again(s *slugv1.Slug, c *slugv1.ClaimSlug) error {
	if c.GetRename() != nil && c.GetRename().GetId() != s.GetClaimId() {
		return errHeld
	}
	return nil
}

// checkClaim wants of a new workspace its name and its creator, of a rename who asks for it.
func checkClaim(slug string, c *slugv1.ClaimSlug) error {
	name, mayBeEmpty := c.GetWorkspaceName(), false
	switch {
	case c.GetRename() == nil && c.GetCreatorId() == "":
		return errNoCreator
	case c.GetRename() != nil && c.GetRename().GetPrincipal() == nil:
		return errNoPrincipal
	case c.GetRename() != nil && c.GetRename().GetId() == "":
		return errNoClaim
	case c.GetRename() != nil:
		name, mayBeEmpty = c.GetRename().GetName(), true
	}
	if err := Check(slug); err != nil {
		return err
	}
	if name == "" && mayBeEmpty {
		return nil
	}
	if err := workspace.CheckName(name); err != nil {
		return err
	}
	return nil
}

// keptFrom tells whether a slug is kept for another workspace.
func keptFrom(call entity.Call, s *slugv1.Slug, workspace string) bool {
	return s.GetReservedFor() != "" && s.GetReservedFor() != workspace && call.At() < s.GetReservedUntil()
}

func release(call entity.Call, s *slugv1.Slug, c *slugv1.ReleaseSlug) ([]slugv1.Event, error) {
	switch {
	case c.GetWorkspaceId() == "":
		return nil, errNoWorkspace
	case c.GetReservedUntil() < 0:
		return nil, errReservedUntil
	case c.GetWorkspaceId() != s.GetWorkspaceId():
		return nil, nil
	case c.GetRefusedClaimId() != "" && c.GetRefusedClaimId() != s.GetClaimId():
		return nil, nil
	}
	return []slugv1.Event{&slugv1.SlugReleased{
		WorkspaceId: c.GetWorkspaceId(), ReservedUntil: c.GetReservedUntil(), At: call.At(),
		RefusedClaimId: c.GetRefusedClaimId(),
	}}, nil
}
