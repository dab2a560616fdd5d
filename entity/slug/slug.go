// Package slug implements the rules of slugs. A slug is the part of a URL that names a workspace; it belongs to at most one
// workspace at a time.
//
//	free ──ClaimSlug──► taken ──ReleaseSlug──► reserved ──(reserved_until)──► free
//
// A released slug stays reserved for the workspace that released it. That workspace may claim it again at any time; other
// workspaces may claim it once the reservation has expired, so that they do not receive traffic meant for the former
// holder. Claiming the slug again does not end the reservation: it still applies if the slug is released at once.
//
// The identity of the entity is the slug itself, so its stream orders concurrent claims and the first one wins. Only the
// platform sends commands to it. A claim contains the creator of the new workspace or the requester of the rename.
//
// A rename is a chain of commands over three entities:
//
//  1. The API sends ClaimSlug with Rename to the new slug: SlugClaimed.
//  2. React sends RenameWorkspace to the workspace, with the requester as sender: WorkspaceRenamed, or a refusal.
//  3. If the workspace refuses, React sends ReleaseSlug with the id of the claim to the new slug: SlugReleased.
//  4. If it accepts, the workspace sends ReleaseSlug with a reservation to its old slug (package workspace, React).
package slug

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errTaken        = entity.Errorf(entity.SlugTaken, "slug is taken")
	errNoWorkspace  = entity.Errorf(entity.InvalidRequest, "workspaceId is empty")
	errNoCreator    = entity.Errorf(entity.InvalidRequest, "creatorId is empty")
	errNoRequester  = entity.Errorf(entity.InvalidRequest, "rename.principal is empty")
	errNoClaimID    = entity.Errorf(entity.InvalidRequest, "rename.id is empty")
	errClaimPending = &entity.Error{
		Code: entity.Unavailable, Message: "another rename of the workspace to this slug is in progress", RetryAfter: time.Second,
	}
	errReservedUntil = entity.Errorf(entity.InvalidRequest, "reservedUntil is before 1970")
)

// Zero returns the state before the first event.
func Zero(identity string) *slugv1.Slug {
	return &slugv1.Slug{Slug: identity}
}

// Kind describes slugs to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of slugs.
var Rules = entity.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
	Name: entity.KindSlug, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React,
	Exposed: []slugv1.Event{&slugv1.SlugClaimed{}, &slugv1.SlugReleased{}},
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: slug_taken, invalid_request, unavailable.
func Decide(call entity.Call, s *slugv1.Slug, c slugv1.Command) ([]slugv1.Event, error) {
	switch c := c.(type) {
	case *slugv1.ClaimSlug:
		return claim(call, s, c)
	case *slugv1.ReleaseSlug:
		return release(call, s, c)
	case *slugv1.ResolveSlug:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindSlug, c)
}

// Evolve returns the state after an event.
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

// React returns the commands that follow from an event. A claim for a new workspace creates the workspace. A claim for a
// rename renames the workspace, with the requester as sender, and releases the slug if the workspace refuses. Until then
// the slug belongs to the workspace: the reactions to one slug run in order, and no other command releases it.
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

// Reply returns the state for every command.
func Reply(_ entity.Call, s *slugv1.Slug, c slugv1.Command, _ []slugv1.Event) proto.Message {
	switch c.(type) {
	case *slugv1.ClaimSlug, *slugv1.ReleaseSlug, *slugv1.ResolveSlug:
	}
	return s
}

// claim assigns the slug to a workspace. Errors: invalid_request, slug_taken, unavailable while another rename is pending.
func claim(call entity.Call, s *slugv1.Slug, c *slugv1.ClaimSlug) ([]slugv1.Event, error) {
	switch {
	case c.GetWorkspaceId() == "":
		return nil, errNoWorkspace
	case c.GetWorkspaceId() == s.GetWorkspaceId():
		return nil, checkRepeatedClaim(s, c)
	}
	if err := checkClaim(call.Identity, c); err != nil {
		return nil, err
	}
	if s.GetWorkspaceId() != "" || isReservedForOther(call, s, c.GetWorkspaceId()) {
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

// checkRepeatedClaim decides a claim of the workspace that already holds the slug. It returns unavailable for a rename other
// than the rename that claimed the slug: the outcome of the earlier rename is not known yet, and may release the slug.
func checkRepeatedClaim(s *slugv1.Slug, c *slugv1.ClaimSlug) error {
	if c.GetRename() != nil && c.GetRename().GetId() != s.GetClaimId() {
		return errClaimPending
	}
	return nil
}

// checkClaim validates the slug and the claim: a new workspace needs a name and a creator, a rename needs an id and a
// requester.
func checkClaim(slug string, c *slugv1.ClaimSlug) error {
	name := c.GetWorkspaceName()
	switch {
	case c.GetRename() == nil && c.GetCreatorId() == "":
		return errNoCreator
	case c.GetRename() != nil && c.GetRename().GetPrincipal() == nil:
		return errNoRequester
	case c.GetRename() != nil && c.GetRename().GetId() == "":
		return errNoClaimID
	case c.GetRename() != nil:
		name = c.GetRename().GetName()
	}
	if err := Check(slug); err != nil {
		return err
	}
	if c.GetRename() != nil && name == "" { // the rename keeps the name
		return nil
	}
	if err := entity.CheckText("name", name, 1, entity.MaxNameLength); err != nil {
		return err
	}
	return nil
}

// isReservedForOther reports whether the slug is reserved for another workspace at the time of the call.
func isReservedForOther(call entity.Call, s *slugv1.Slug, workspace string) bool {
	return s.GetReservedFor() != "" && s.GetReservedFor() != workspace && call.At() < s.GetReservedUntil()
}

// release releases the slug. It has no effect if the workspace does not hold the slug, or if another claim holds it than
// the claim that was refused. Errors: invalid_request.
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

// MinLength and MaxLength are the limits of the length of a slug, in characters (decisions, section 3).
const (
	MinLength = 3
	MaxLength = 30
)

var (
	errLength       = entity.Errorf(entity.InvalidRequest, "slug must have %d to %d characters", MinLength, MaxLength)
	errAlphabet     = entity.Errorf(entity.InvalidRequest, "slug may only have the characters a-z, 0-9 and -")
	errEnds         = entity.Errorf(entity.InvalidRequest, "slug must start with a letter and end with a letter or digit")
	errDoubleHyphen = entity.Errorf(entity.InvalidRequest, "slug must not have two hyphens in a row")
	errReservedWord = entity.Errorf(entity.InvalidRequest, "slug is reserved")
)

// Check returns an error unless a text may be the slug of a workspace. Errors: invalid_request.
func Check(slug string) *entity.Error {
	if err := CheckForm(slug); err != nil {
		return err
	}
	if isReservedWord[slug] {
		return errReservedWord
	}
	return nil
}

// CheckForm is Check without the reserved words, for slugs that name something inside a workspace. Errors: invalid_request.
func CheckForm(slug string) *entity.Error {
	switch {
	case len(slug) < MinLength || len(slug) > MaxLength:
		return errLength
	case strings.ContainsFunc(slug, isOutsideAlphabet):
		return errAlphabet
	case slug[0] < 'a' || slug[len(slug)-1] == '-':
		return errEnds
	case strings.Contains(slug, "--"):
		// In a host name, two hyphens separate the name of an app from the slug of its workspace.
		return errDoubleHyphen
	}
	return nil
}

func isOutsideAlphabet(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

// isReservedWord is the set of words that no workspace may have as its slug: they name parts of the service, or are
// mistaken for them.
var isReservedWord = func() map[string]bool {
	words := make(map[string]bool)
	for word := range strings.FieldsSeq(`
		root api www web admin administrator app apps mail email smtp imap pop pop3 ftp sftp ssh dns ns1 ns2 mx1 mx2
		static assets cdn media docs help status support blog news about legal privacy terms security abuse contact
		postmaster hostmaster webmaster noreply no-reply
		auth login logout signin sign-in signup sign-up register oauth oauth2 sso account accounts billing
		settings system internal edge console dashboard proxy gateway
		user users workspace workspaces agent agents session sessions drive files
		health healthz readyz livez metrics debug localhost local test example
		autoconfig autodiscover wpad well-known
		atelier
	`) {
		words[word] = true
	}
	return words
}()
