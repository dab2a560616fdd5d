// Package subject implements the rules of subjects: the identities of people at OpenID Connect providers. A subject belongs
// to at most one user, and signs in to that user's account whatever email address it has (OpenID Connect Core 1.0, section
// 5.7).
//
//	free ──ClaimSubject──► claimed ──ReleaseSubject──► free
//
// The identity of the entity is the Key of the issuer and the subject, so its stream orders concurrent claims and the first
// one wins. Only the platform sends commands to it.
//
// Linking is a chain of commands over two entities:
//
//  1. A sign-in sends ClaimSubject to the subject: SubjectClaimed.
//  2. React sends LinkIdentity to the user: IdentityLinked, or a refusal, because another subject of the issuer is linked.
//  3. If the user refuses, React sends ReleaseSubject to the subject: SubjectReleased.
//
// When an operator unlinks the user, the user sends ReleaseSubject (package user, React). Links that are older than this
// kind are claimed with the time at which they were made (package browser, subjects.go). If two users were linked to one
// subject, the earlier link stays and the other one is removed.
package subject

import (
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	subjectv1 "github.com/atelier-run/atelier/messages/subject/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxIssuerLength is the greatest length of an issuer, in bytes.
	MaxIssuerLength = 512
	// MaxSubjectLength is the greatest length of a subject, in ASCII characters (OpenID Connect Core 1.0, section 2).
	MaxSubjectLength = 255
)

var (
	errIssuer  = entity.Errorf(entity.InvalidRequest, "issuer must have 1 to %d printable ASCII characters", MaxIssuerLength)
	errSubject = entity.Errorf(entity.InvalidRequest, "subject must have 1 to %d printable ASCII characters", MaxSubjectLength)
	errKey     = entity.Errorf(entity.InvalidRequest, "the identity of the entity is not the key of the issuer and the subject")
	errNoUser  = entity.Errorf(entity.InvalidRequest, "userId must have 1 to %d bytes", entity.MaxIDLength)
	errTaken   = entity.Errorf(entity.Forbidden, "the identity at the provider belongs to another account; ask an operator to unlink it")
)

// CheckIssuer returns an error unless a text may be an OpenID Connect issuer. Errors: invalid_request.
func CheckIssuer(issuer string) error {
	if !entity.IsPrintableASCII(issuer, MaxIssuerLength) {
		return errIssuer
	}
	return nil
}

// Check returns an error unless a text may be a subject at an issuer. Errors: invalid_request.
func Check(subject string) error {
	if !entity.IsPrintableASCII(subject, MaxSubjectLength) {
		return errSubject
	}
	return nil
}

// Key returns the identity of the entity for a subject of an issuer. It has no zero byte and a fixed length.
func Key(issuer, subject string) string {
	sum := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return "sub_" + hex.EncodeToString(sum[:])
}

// Zero returns the state before the first event.
func Zero(string) *subjectv1.Subject { return &subjectv1.Subject{} }

// Kind describes subjects to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of subjects.
var Rules = entity.Rules[*subjectv1.Subject, subjectv1.Command, subjectv1.Event]{
	Name: entity.KindSubject, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: invalid_request, forbidden if the subject belongs to another user.
func Decide(call entity.Call, s *subjectv1.Subject, c subjectv1.Command) ([]subjectv1.Event, error) {
	switch c := c.(type) {
	case *subjectv1.ClaimSubject:
		return claim(call, s, c)
	case *subjectv1.ReleaseSubject:
		if c.GetUserId() == "" || c.GetUserId() != s.GetUserId() {
			return nil, nil
		}
		return []subjectv1.Event{&subjectv1.SubjectReleased{UserId: c.GetUserId(), At: call.At()}}, nil
	case *subjectv1.ResolveSubject:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindSubject, c)
}

func claim(call entity.Call, s *subjectv1.Subject, c *subjectv1.ClaimSubject) ([]subjectv1.Event, error) {
	if err := CheckIssuer(c.GetIssuer()); err != nil {
		return nil, err
	}
	if err := Check(c.GetSubject()); err != nil {
		return nil, err
	}
	linkedAt := c.GetLinkedAt()
	if linkedAt == 0 {
		linkedAt = call.At()
	}
	switch {
	case call.Identity != Key(c.GetIssuer(), c.GetSubject()):
		return nil, errKey
	case !entity.IsID(c.GetUserId()):
		return nil, errNoUser
	case c.GetUserId() == s.GetUserId():
		return nil, nil
	case s.GetUserId() != "" && (c.GetLinkedAt() == 0 || linkedAt >= s.GetLinkedAt()):
		return nil, errTaken
	}
	return []subjectv1.Event{&subjectv1.SubjectClaimed{
		Issuer: c.GetIssuer(), Subject: c.GetSubject(), UserId: c.GetUserId(), LinkedAt: linkedAt, At: call.At(),
		ReplacedUserId: s.GetUserId(),
	}}, nil
}

// Evolve returns the state after an event.
func Evolve(s *subjectv1.Subject, e subjectv1.Event) *subjectv1.Subject {
	switch e := e.(type) {
	case *subjectv1.SubjectClaimed:
		return &subjectv1.Subject{
			Issuer: e.GetIssuer(), Subject: e.GetSubject(), UserId: e.GetUserId(), LinkedAt: e.GetLinkedAt(),
		}
	case *subjectv1.SubjectReleased:
		return &subjectv1.Subject{Issuer: s.GetIssuer(), Subject: s.GetSubject()}
	}
	return s
}

// React returns the commands that follow from an event: a claimed subject is linked to its user, or released if the user
// refuses, and unlinked from the user that it belonged to.
func React(identity string, event subjectv1.Event) []entity.Reaction {
	e, claimed := event.(*subjectv1.SubjectClaimed)
	if !claimed {
		return nil
	}
	linked := &userv1.LinkedIdentity{Issuer: e.GetIssuer(), Subject: e.GetSubject(), LinkedAt: e.GetLinkedAt()}
	all := []entity.Reaction{{
		Command: entity.Command{Kind: entity.KindUser, Identity: e.GetUserId(), Message: &userv1.LinkIdentity{Identity: linked}},
		Otherwise: &entity.Command{
			Kind: entity.KindSubject, Identity: identity, Message: &subjectv1.ReleaseSubject{UserId: e.GetUserId()},
		},
	}}
	if e.GetReplacedUserId() != "" {
		all = append(all, entity.Send(entity.KindUser, e.GetReplacedUserId(), &userv1.UnlinkIdentities{Identity: linked}))
	}
	return all
}

// Reply returns the state for every command.
func Reply(_ entity.Call, s *subjectv1.Subject, c subjectv1.Command, _ []subjectv1.Event) proto.Message {
	switch c.(type) {
	case *subjectv1.ClaimSubject, *subjectv1.ReleaseSubject, *subjectv1.ResolveSubject:
	}
	return s
}
