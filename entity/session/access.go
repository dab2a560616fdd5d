package session

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// IDPrefix begins the id of a session; a lower-case ULID follows.
const IDPrefix = "ses_"

// A principal that does not see a session gets errNotFound in every case, so that it cannot learn whether the session exists.
var (
	errNotFound  = entity.Errorf(entity.NotFound, "no such session")
	errForbidden = entity.Errorf(entity.Forbidden, "only the creator of the session and owners of the workspace may do this")
)

// Identity returns the identity of a session. SplitIdentity returns its parts.
func Identity(workspaceID, sessionID string) string { return workspaceID + "/" + sessionID }

// SplitIdentity returns the workspace and the id of a session.
func SplitIdentity(identity string) (workspaceID, sessionID string) {
	workspaceID, sessionID, _ = strings.Cut(identity, "/")
	return workspaceID, sessionID
}

// IsID reports whether a text has the form of the id of a session.
func IsID(text string) bool {
	digits, ok := strings.CutPrefix(text, IDPrefix)
	return ok && len(digits) == entity.ULIDLength && !strings.ContainsFunc(digits, func(r rune) bool {
		return !strings.ContainsRune(entity.ULIDDigits, r)
	})
}

// DerivedID returns the id of the session that a sender creates with a request id, so that a repeated request finds the session
// that the first one has created. Other senders, and other workspaces, get other ids for the same request id.
func DerivedID(workspaceID string, sender *sessionv1.Sender, requestID string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{workspaceID, sender.GetKind().String(), sender.GetId(), requestID}, "\x00")))
	var text [entity.ULIDLength]byte
	text[0] = entity.ULIDDigits[sum[0]&7] // the first digit of a ULID has three bits
	for i := 1; i < len(text); i++ {
		text[i] = entity.ULIDDigits[sum[i]&31]
	}
	return IDPrefix + string(text[:])
}

// SenderOf returns the author of the inputs of a principal (specification, session semantics).
func SenderOf(p *wirev1.Principal) *sessionv1.Sender {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		return &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_APP, Id: p.GetCredentialId()}
	case wirev1.CredentialKind_CREDENTIAL_KIND_SESSION:
		return &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_SESSION, Id: p.GetCredentialId()}
	case wirev1.CredentialKind_CREDENTIAL_KIND_USER, wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION,
		wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION,
		wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		return &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_USER, Id: p.GetUserId()}
	default:
		return &sessionv1.Sender{Kind: sessionv1.SenderKind_SENDER_KIND_SYSTEM}
	}
}

// readerOf returns the reader of a new row of a principal: the person who wrote the row. It returns "" if an app or a session wrote
// the row, although its principal names the person that it works for.
func readerOf(p *wirev1.Principal) string {
	if SenderOf(p).GetKind() != sessionv1.SenderKind_SENDER_KIND_USER {
		return ""
	}
	return p.GetUserId()
}

// participantOf returns the participant of an input of a principal; nil for notes, which start no turn, and for inputs of the
// platform, which has no person. An agent works on behalf of the participant of its own turn.
func participantOf(p *wirev1.Principal, in *sessionv1.Input) *sessionv1.Participant {
	if in.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE || entity.IsPlatform(p) {
		return nil
	}
	if of := p.GetParticipant(); of != nil && p.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SESSION {
		return &sessionv1.Participant{
			UserId: of.GetUserId(), GrantId: of.GetGrantId(), CredentialId: of.GetCredentialId(), AppId: of.GetAppId(),
		}
	}
	participant := &sessionv1.Participant{UserId: p.GetUserId()}
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:
		participant.GrantId = p.GetCredentialId()
	case wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:
		participant.CredentialId = p.GetCredentialId()
	case wirev1.CredentialKind_CREDENTIAL_KIND_APP:
		participant.AppId = p.GetCredentialId()
	default:
	}
	return participant
}

// ParticipantOf returns the participant of the session; turns may go on as long as the participant has access. The participant is the
// participant of the last input that a turn has taken, or the creator if the inputs were accepted before participants were recorded.
func ParticipantOf(s *sessionv1.Session) *sessionv1.Participant {
	if s.GetParticipant() != nil {
		return s.GetParticipant()
	}
	return &sessionv1.Participant{UserId: s.GetCreatorUserId()}
}

// Visible returns not_found unless the principal of the call sees the session. A specific audience restricts people alone: its
// members, the creator and owners see the session, and so do agents, apps and the workspace's computer.
func Visible(call entity.Call, s *sessionv1.Session) error {
	if !s.GetStarted() || s.GetSealed() || !sees(call, s) {
		return errNotFound
	}
	return nil
}

func sees(call entity.Call, s *sessionv1.Session) bool {
	switch call.Principal.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_PLATFORM, wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM,
		wirev1.CredentialKind_CREDENTIAL_KIND_APP, wirev1.CredentialKind_CREDENTIAL_KIND_SESSION:
		return true
	default:
	}
	user := call.Principal.GetUserId()
	return !s.GetAudience().GetSpecific() || call.Role == workspacev1.Role_ROLE_OWNER || user == s.GetCreatorUserId() && user != "" ||
		slices.Contains(s.GetAudience().GetUserIds(), user)
}

// PermissionsOf returns the permissions of the principal of the call for the session. The principal sees the session.
func PermissionsOf(call entity.Call, s *sessionv1.Session) *sessionv1.Permissions {
	changes := entity.IsPlatform(call.Principal) ||
		call.Role == workspacev1.Role_ROLE_OWNER || call.Role == workspacev1.Role_ROLE_EDITOR
	administers := changes && administers(call, s)
	return &sessionv1.Permissions{
		Send: changes, Answer: changes, Interrupt: changes, Rename: changes, GlobalArchive: changes,
		ManageAudience: administers, Delete: administers, PersonalArchive: call.Principal.GetUserId() != "" && !call.Principal.GetReadOnly(),
	}
}

// administers reports whether the principal may delete the session and change its audience: its creator, and owners.
func administers(call entity.Call, s *sessionv1.Session) bool {
	if entity.IsPlatform(call.Principal) || call.Role == workspacev1.Role_ROLE_OWNER {
		return true
	}
	sender, creator := SenderOf(call.Principal), s.GetCreatedBy()
	if sender.GetKind() == sessionv1.SenderKind_SENDER_KIND_USER {
		return sender.GetId() != "" && sender.GetId() == s.GetCreatorUserId()
	}
	return sender.GetKind() == creator.GetKind() && sender.GetId() == creator.GetId()
}

// The accesses that several commands share.
var (
	readAccess   = entity.Requires(entity.Reads(entity.Sessions))
	changeAccess = entity.Requires(entity.Changes(entity.Sessions))
	ownAccess    = entity.Requires(entity.ChangesOwn(entity.Sessions))
)

// accessOf returns the access to a command, which the workspace checks.
func accessOf(c sessionv1.Command) entity.Access {
	switch c := c.(type) {
	case *sessionv1.StartSession, *sessionv1.SendInput, *sessionv1.Interrupt, *sessionv1.MoveCwd,
		*sessionv1.RenameSession, *sessionv1.ChangeAudience, *sessionv1.DeleteSession, *sessionv1.AdmitChild, *sessionv1.AllowUsage:
		return changeAccess
	case *sessionv1.ArchiveSession:
		if c.GetScope() == sessionv1.ArchiveScope_ARCHIVE_SCOPE_PERSONAL {
			return ownAccess
		}
		return changeAccess
	case *sessionv1.MarkRead:
		return ownAccess
	case *sessionv1.DescribeSession, *sessionv1.AwaitInput:
		return readAccess
	case *sessionv1.ClaimTurn, *sessionv1.AwaitTurn, *sessionv1.RecordRows, *sessionv1.EndTurn, *sessionv1.PublishDelta,
		*sessionv1.WakeSession, *sessionv1.EraseRows, *sessionv1.MoveImage, *sessionv1.ReportErased:
	}
	return entity.PlatformOnly()
}
