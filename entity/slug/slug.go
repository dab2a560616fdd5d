// Package slug holds the rules of a workspace's address segment, which names at most one workspace.
//
//	free ──ClaimSlug──► taken
//
// A slug's identity is the slug itself, so that its one stream settles who of several claimants wins. The platform
// alone asks it; the person on whose behalf it does is inside the claim.
package slug

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
)

var (
	errPlatformOnly   = entity.Errorf(entity.Forbidden, "only the platform does this")
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a slug")
	errTaken          = entity.Errorf(entity.SlugTaken, "slug is taken")
	errNoWorkspace    = entity.Errorf(entity.InvalidRequest, "workspaceId is empty")
	errNoCreator      = entity.Errorf(entity.InvalidRequest, "creatorId is empty")
)

// Zero is the state before the first event.
func Zero(identity string) *slugv1.Slug {
	return &slugv1.Slug{Slug: identity}
}

// Decide turns a command into events. No events and no error: already so, or a query.
// Errors: slug_taken, invalid_request, forbidden.
func Decide(call entity.Call, s *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
	if !entity.IsPlatform(call.Principal) {
		return nil, errPlatformOnly
	}
	switch c := c.(type) {
	case *slugv1.ClaimSlug:
		return claim(call, s, c)
	case *slugv1.ResolveSlug:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
func Evolve(s *slugv1.Slug, e slugv1.Event) *slugv1.Slug {
	switch e := e.(type) {
	case *slugv1.SlugClaimed:
		return &slugv1.Slug{Slug: e.GetSlug(), WorkspaceId: e.GetWorkspaceId()}
	}
	return s
}

// Reply is the state for every command.
func Reply(_ entity.Call, s *slugv1.Slug, c slugv1.Command, _ []slugv1.Event) proto.Message {
	switch c.(type) {
	case *slugv1.ClaimSlug, *slugv1.ResolveSlug:
	}
	return s
}

func claim(call entity.Call, s *slugv1.Slug, c *slugv1.ClaimSlug) ([]slugv1.Event, error) {
	switch {
	case c.GetWorkspaceId() == "":
		return nil, errNoWorkspace
	case c.GetWorkspaceId() == s.GetWorkspaceId():
		return nil, nil
	case c.GetCreatorId() == "":
		return nil, errNoCreator
	}
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	if err := workspace.CheckName(c.GetWorkspaceName()); err != nil {
		return nil, err
	}
	if s.GetWorkspaceId() != "" {
		return nil, errTaken
	}
	return []slugv1.Event{&slugv1.SlugClaimed{
		Slug:          call.Identity,
		WorkspaceId:   c.GetWorkspaceId(),
		WorkspaceName: c.GetWorkspaceName(),
		CreatorId:     c.GetCreatorId(),
		At:            call.At(),
	}}, nil
}
